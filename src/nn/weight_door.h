// The only way to a weight and to the memory of its gradient. Plain data parallelism is the case in
// which a weight is always there; with fully sharded data parallelism it is brought from the other
// ranks before its use and let go behind it (parallel/data/sharded_weights.h). Layers and ops know
// nothing of this: they call Parameter::acquire and write into sinks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phx {

enum class WeightUse : uint8_t { forward, backward };
// Whether the backward of an op reads the weight, or only writes its gradient.
enum class BackwardReads : uint8_t { weight, nothing };

// Parameters are named by their index in the store.
class WeightDoor {
 public:
  // The weight is about to be used. Until release() its memory stays.
  virtual void acquire(size_t parameter, WeightUse use) = 0;
  virtual void release(size_t parameter) = 0;
  // Its gradient is about to be written or added to.
  virtual void open_gradient(size_t parameter) = 0;
  // A use of it has been back-propagated.
  virtual void use_done(size_t parameter) = 0;

 protected:
  ~WeightDoor() = default;
};

}  // namespace phx
