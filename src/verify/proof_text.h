// A proof for people: how far a layout is from one rank, in a table, and the verdict.
#pragma once

#include <string>

#include "phalanx/verify/parity.h"
#include "phalanx/verify/resume.h"

namespace phx {

// `all`: every gradient and weight by name, not only the worst few.
std::string proof_text(const Parity& parity, int world, bool all);

std::string resume_text(const ResumeProof& proof);

}  // namespace phx
