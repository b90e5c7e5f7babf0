// Tensors from any source (a native checkpoint, a Hugging Face folder, a torch_dist directory, a
// conversion over one of them) into a rank's memory, whatever the layout. A rank reads the boxes
// that it holds and nothing else. Strict: all tensors of the model are there and fit, and the
// source has no other ones, or nothing is loaded and the error has the names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

// Tensors come in chunks of about this size, read by this many threads.
inline constexpr int64_t kLoadChunkBytes = 16 << 20;
inline constexpr int kLoadReaders = 4;

struct LoadOptions {
  // Tensors whose names begin so are left alone: optimizer state when only weights are wanted.
  std::vector<std::string> ignored = {};
  // Floats of another type are converted (weights for a new run); otherwise types must be equal.
  bool convert = false;
  // All tensors of the model, with those that other ranks hold; null: the store is all of it.
  const TensorInfos* model = nullptr;
};

struct LoadReport {
  int64_t tensors = 0;  // of the model: N of N
  int64_t bytes = 0;    // that this rank took
};

// "loaded 291 of 291 tensors" is the only success. Memory beside the states:
// load_memory.h.
LoadReport load_parameters(const TensorSource& source, const ParameterStore& store,
                           std::span<const FlatState> states, const LoadOptions& options = {});

// What the source has of a store of buffers, whose shapes must fit; those that it does not have
// stay as they are. Types may differ.
void load_buffers(const TensorSource& source, const ParameterStore& buffers);
// `expected` with the buffers that the source has.
TensorInfos with_buffers(TensorInfos expected, const TensorSource& source,
                         const TensorInfos& buffers);

// The check alone: throws with every tensor that is missing (and what the source has instead, by
// nearest name), of another shape or type, or not expected.
void check_tensors(const TensorSource& source, const TensorInfos& expected,
                   const LoadOptions& options = {});

}  // namespace phx
