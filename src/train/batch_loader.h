// Global batches: which samples make iteration i, their tokens on the device.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "phalanx/core/tensor.h"
#include "phalanx/data/batch_order.h"
#include "phalanx/data/sample_source.h"
#include "phalanx/models/batch.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

// A global batch as one data-parallel rank sees it.
struct BatchShape {
  int64_t micro_batch = 1;
  int64_t num_micro_batches = 1;  // of the largest batch
  int64_t seq_length = 0;
  int64_t data_rank = 0, data_ranks = 1;
  // Tokens that are predicted beside the next one: tokens.k, labels.k (models/batch.h).
  int64_t ahead = 0;
  // Whether this rank reads samples. The stages inside of a pipeline need none, unless samples have
  // masks, positions or lengths.
  bool reads = true;
  // Which rows of every sequence this rank has. All ranks that share a sequence read all of it.
  SequenceCut cut = {};

  int64_t samples() const { return micro_batch * num_micro_batches * data_ranks; }  // of all ranks
};

// Turns samples into micro-batches. Tokens go to the device in one copy a step, from host memory
// that is not touched again before the device has read it. While a batch is trained on, another
// thread reads the one that comes next.
//
// Labels that do not count for the loss become -100. Samples of packed sequences lie one behind the
// other in one row: [s * b, 1] instead of [s, b]. Of a sequence that ranks share each keeps the
// rows of its cut; lengths and counts stay those of the whole.
class BatchLoader {
 public:
  BatchLoader(std::shared_ptr<const SampleSource> source, const BatchShape& shape,
              int64_t vocab_size, Device device, const BatchOrder::Options& order = {});

  // The samples after `consumed` ones, of which this rank takes num_micro_batches micro-batches, as
  // many as there is room for if that is not said.
  void load(int64_t consumed, int64_t num_micro_batches);
  void load(int64_t consumed) { load(consumed, shape_.num_micro_batches); }
  // The same for one rank of several, which the others wait for: where the samples cannot be read
  // the batch is blank and counts for nothing, and the error is returned.
  std::exception_ptr try_load(int64_t consumed, int64_t num_micro_batches);

  const BatchShape& shape() const { return shape_; }
  int64_t num_micro_batches() const { return num_micro_batches_; }  // of the current batch
  // That count for the loss, of this rank's samples: of each micro-batch.
  std::span<const int64_t> tokens() const { return tokens_; }
  // Of this rank's sequences, the sum of length squared: what attention costs. Sequences that are
  // packed into a sample count each by itself.
  int64_t squared_lengths() const;
  Batch micro_batch(int64_t k) const;
  SamplePlace samples(int64_t k) const;  // of micro-batch k

 private:
  // The numbers of a micro-batch, i32: tokens, labels, positions if samples have them; the same
  // moved by each number of tokens ahead; and where sequences begin (at most every token does) if
  // they are packed.
  struct Layout {
    bool positions = false, packed = false;
    int64_t plane = 0;  // tokens of a micro-batch
    int64_t ahead = 0;
    int64_t row = 0;  // tokens of all sequences together: where sequences begin
    int64_t size() const;
    int64_t tokens_at(int64_t k) const { return k * (positions ? 3 : 2) * plane; }
    int64_t labels_at(int64_t k) const { return tokens_at(k) + plane; }
    int64_t positions_at(int64_t k) const { return tokens_at(k) + 2 * plane; }
    int64_t cu_seqlens_at() const { return tokens_at(ahead + 1); }
  };
  struct Sequences {
    int64_t count = 1, longest = 0;  // of a micro-batch
    int64_t squared = 0;             // sum of length squared
  };
  struct HostBatch {
    std::vector<int32_t> numbers;  // [num_micro_batches, layout.size()]
    std::vector<Sequences> sequences;
    std::vector<int64_t> tokens;
    std::vector<int64_t> ahead;  // [num_micro_batches, layout.ahead]: labels.k that count
  };
  // What a batch is read by; shared with the thread that reads ahead.
  struct Reader {
    std::shared_ptr<const SampleSource> source;
    BatchOrder order;
    BatchShape shape;
    Layout layout, own;  // of whole sequences, and of what this rank has
    int64_t vocab_size;

    HostBatch read(int64_t consumed, int64_t num_micro_batches) const;
    HostBatch blank(int64_t num_micro_batches) const;
    void fill(const Sample& sample, int64_t index, int64_t j, int32_t* numbers, HostBatch& batch,
              Sequences& sequences) const;
    void fill_ahead(const Sample& sample, int64_t j, int32_t* numbers, HostBatch& batch) const;
    void check(const Sample& sample, int64_t index) const;
    // Whole micro-batches -> those rows that this rank has.
    void keep_own_rows(std::vector<int32_t>& numbers) const;
  };
  struct Ahead {
    int64_t consumed = 0, num_micro_batches = 0;
    std::future<HostBatch> batch;
  };

  bool begin_load(int64_t consumed, int64_t num_micro_batches);  // whether samples are read
  HostBatch next(int64_t consumed, int64_t num_micro_batches);
  void place(HostBatch batch);

  std::shared_ptr<const Reader> reader_;
  BatchShape shape_;
  bool interleaved_ =
      false;       // neighbours of a micro-batch are as far apart as there are data ranks
  Layout layout_;  // of what this rank has
  Tensor device_;  // i32 [num_micro_batches, layout.size()]; undefined if this rank reads none
  struct Staging {
    std::shared_ptr<void> memory;
    Fence read;  // passed when the device has read the memory
  };
  std::array<Staging, 2> staging_;
  int next_ = 0;
  int64_t consumed_ = 0, num_micro_batches_ = 0;
  std::vector<int64_t> tokens_, tokens_ahead_;
  std::vector<Sequences> sequences_;
  std::optional<Ahead> ahead_;
};

}  // namespace phx
