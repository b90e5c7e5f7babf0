// Global batches: which samples make iteration i, their tokens on the device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "data/sample_source.h"
#include "models/gpt/gpt_model.h"

namespace phx {

// A global batch as one data-parallel rank sees it.
struct BatchShape {
  int64_t micro_batch = 1;
  int64_t num_micro_batches = 1;  // of the largest batch
  int64_t seq_length = 0;
  int64_t data_rank = 0, data_ranks = 1;
  // Whether this rank reads tokens or labels: the stages inside of a pipeline do not.
  bool reads = true;

  int64_t samples() const { return micro_batch * num_micro_batches * data_ranks; }  // of all ranks
};

// Turns consecutive samples into micro-batches: the ranks take micro-batches in turn, so a global
// batch has the same samples whatever the number of ranks. Tokens go to the device in one copy a
// step, from host memory that is not touched again before the device has read it.
class BatchLoader {
 public:
  BatchLoader(std::shared_ptr<const SampleSource> source, const BatchShape& shape,
              int64_t vocab_size, Device device);

  // The samples from first_sample on, in the source's order, of which this rank takes
  // num_micro_batches micro-batches, as many as there is room for if that is not said ("single"
  // order: sample j of micro-batch k of data rank r is number (k * data_ranks + r) * micro_batch +
  // j).
  void load(int64_t first_sample, int64_t num_micro_batches);
  void load(int64_t first_sample) { load(first_sample, shape_.num_micro_batches); }

  const BatchShape& shape() const { return shape_; }
  int64_t num_micro_batches() const { return num_micro_batches_; }  // of the current batch
  int64_t tokens() const { return tokens_; }  // that count for the loss, of this rank's samples
  Batch micro_batch(int64_t k) const;
  int64_t first_sample(int64_t k) const {  // of this rank's micro-batch k
    return first_sample_ + (k * shape_.data_ranks + shape_.data_rank) * shape_.micro_batch;
  }

 private:
  void fill(int32_t* tokens, int32_t* labels, int64_t sample, int64_t column);

  std::shared_ptr<const SampleSource> source_;
  BatchShape shape_;
  int64_t vocab_size_;
  // i32 [num_micro_batches, 2, s, b]: tokens and labels; undefined if this rank reads none
  Tensor device_;
  struct Staging {
    std::shared_ptr<void> memory;
    Fence read;  // passed when the device has read the memory
  };
  std::array<Staging, 2> staging_;
  int next_ = 0;
  int64_t first_sample_ = 0, num_micro_batches_ = 0, tokens_ = 0;
  std::vector<int32_t> sample_;  // [s + 1]
};

}  // namespace phx
