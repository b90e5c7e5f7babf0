// The conformance suite as a program, for launchers to start: every rank checks all facts, and rank
// 0 prints a digest of all bytes. The first argument may ask for something else instead:
//   facts          the default; with `cuda` as the second argument on GPUs
//   throw, kill    rank 1 throws, or is killed, while the others wait
//   late           rank 1 does not enter the second collective; the others time out
//   absent         rank 1 never arrives
//   env            prints what the launcher said; fails if it is rank 7
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <thread>

#include "comm/facts.h"
#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/process_environment.h"
#include "phalanx/comm/world.h"
#include "phalanx/core/runtime.h"

namespace phx {
namespace {

using namespace std::chrono_literals;

void trouble(const std::string& what, World& world, Device device) {
  const bool cuda = device.kind() == DeviceKind::cuda;
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto all = world.group(ranks, "all");
  all->barrier();
  if (world.rank() == 1) {
    if (what == "throw") throw_error("out of coffee");
    if (what == "kill") ::kill(::getpid(), SIGKILL);
    if (what == "late") std::this_thread::sleep_for(cuda ? 12s : 2s);
  }
  const Tensor x = zeros({7}, DType::f32, device);
  all->all_reduce(x, device.runtime().stream(StreamName::compute));
  all->barrier();  // NCCL only enqueued it
}

int run(const std::string& what, bool cuda) {
  const auto environment = launch_environment();
  prepare_process(environment);
  if (what == "env") {
    const int rank = environment->rank;
    std::cout << "rank " << rank << " of " << environment->size << ", local "
              << environment->local_rank << " of " << environment->local_size << "\n";
    std::cerr << "a word of rank " << rank;  // without an end of line
    return rank == 7 ? 7 : 0;
  }
  if (what == "absent" && environment->rank == 1) {
    std::this_thread::sleep_for(2s);
    return 0;
  }
  const bool times_out = what == "late" || what == "absent";
  const std::chrono::milliseconds patience =
      cuda ? 8s : 1s;  // also for the start, which takes a GPU seconds
  const DeviceKind device = cuda ? DeviceKind::cuda : DeviceKind::cpu;
  const auto world = make_world(device, {.timeout = times_out ? patience : 60s});
  Runtime runtime({.kind = device, .cuda_ordinal = world->gpu()});
  try {
    if (what == "facts") {
      const uint64_t digest = testing::check_facts(*world, runtime.device());
      if (world->rank() == 0)
        std::cout << world->description() << "\ndigest " << std::hex << digest << std::endl;
    } else {
      trouble(what, *world, runtime.device());
    }
  } catch (const std::exception& error) {
    world->fail(error.what());
    throw;
  }
  return 0;
}

}  // namespace
}  // namespace phx

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "facts";
    return phx::run(what, argc > 2 && std::string(argv[2]) == "cuda");
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << std::endl;
    return 1;
  }
}
