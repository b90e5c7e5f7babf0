// How much host memory the checkpoints of an asynchronous run go through. Memory for a rank's whole
// state takes it at the speed of the bus; with less, the rest waits for the disk.
#pragma once

#include <cstdint>
#include <string>

namespace phx {

struct SaveBuffer {
  int64_t bytes = 0;  // of a rank
  int64_t state = 0;  // what a rank saves
  bool holds_all() const { return bytes >= state; }
  // What the log says: how large, and how long the loop will stand still for a save.
  std::string text() const;
};

// All of the state where `ranks` of this machine leave a quarter of its free memory, else what
// does. Where ranks compute on the host, whose activations are still to come, they leave three
// quarters.
enum class ComputesOn { device, host };
SaveBuffer save_buffer(int64_t state, int64_t free_memory, int ranks, ComputesOn where);

}  // namespace phx
