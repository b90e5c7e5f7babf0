// A picture of a schedule for people: a row a rank, time to the right, a box a compute step with
// the number of its micro-batch. Colour tells the kind of step, paler colour a later chunk; what
// stays hatched is the bubble.
#pragma once

#include <string>

#include "phalanx/parallel/pipeline/clock.h"
#include "phalanx/parallel/pipeline/schedule.h"

namespace phx {

struct DrawOptions {
  double pixels_per_unit = 28;  // of time; the same in pictures that are to be compared
};

// An SVG file. The same schedule gives the same bytes.
std::string draw_schedule(const Schedule& schedule, const Timeline& timeline,
                          const DrawOptions& options = {});

}  // namespace phx
