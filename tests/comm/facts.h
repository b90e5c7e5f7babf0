// What is true of every World, whatever moves the bytes: the conformance suite. The same functions
// run on threads, under `phalanx launch` and mpirun, and on GPUs over NCCL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/comm/communicator.h"

namespace phx::testing {

struct Fact {
  const char* name;
  // Throws what is not true. `digest` takes in every byte that came out of a collective.
  void (*check)(World& world, Device device, uint64_t& digest);
};
const std::vector<Fact>& facts();

// All facts on this rank; the error of the first that fails is named after it. Returns the digest
// over all ranks, the same on each: worlds that agree to the byte have equal ones.
uint64_t check_facts(World& world, Device device);

}  // namespace phx::testing
