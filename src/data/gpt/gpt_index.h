// Which tokens make which sample of a GPT dataset, and in which order they come: the document,
// sample and shuffle indices of Megatron, element for element.
//
// Documents (a document is a sequence of the pair) are repeated for as many epochs as the samples
// need and shuffled; their tokens, end to end, are cut into samples of seq_length + 1 that share
// one token with the next; the samples are shuffled again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "phalanx/data/sequence_store.h"

namespace phx {

// Sequences [first, first + count) of a store.
struct SequenceRange {
  int64_t first = 0, count = 0;
};

struct GptIndexRequest {
  SequenceRange documents;
  int64_t seq_length = 0;
  std::optional<int64_t> num_samples;  // none: those of one epoch
  uint32_t seed = 1234;
};

// How often documents are repeated.
struct EpochPlan {
  int64_t epochs = 1;
  // The last epoch is shuffled apart if less than four fifths of it are used: what is left over is
  // then spread over it alone.
  bool last_apart = false;
  int64_t samples_before_last = 0;  // where it is apart
  int64_t num_samples = 0;          // that all epochs make
};
EpochPlan plan_epochs(int64_t tokens, int64_t seq_length, std::optional<int64_t> num_samples);

// The three arrays, in memory of their own or in a mapped file.
class GptIndex {
 public:
  struct Start {       // of a sample
    int64_t position;  // in the document index
    int64_t offset;    // in that document, in tokens
  };

  // Uses up to `threads` threads.
  static GptIndex build(LengthsView lengths, const GptIndexRequest& request, int threads);

  int64_t num_samples() const { return num_samples_; }
  int64_t num_documents() const { return int64_t(documents_.size()); }  // epochs times documents
  int32_t document(int64_t position) const { return documents_[size_t(position)]; }
  Start start(int64_t sample) const {  // sample 0 .. num_samples(): the last is where all end
    const size_t at = 2 * size_t(sample);
    if (!wide_starts_.empty()) return {wide_starts_[at], wide_starts_[at + 1]};
    return {starts_[at], starts_[at + 1]};
  }
  int64_t shuffled(int64_t place) const {  // the sample at a place of the order
    return wide_shuffle_.empty() ? int64_t{shuffle_[size_t(place)]} : wide_shuffle_[size_t(place)];
  }

  // The arrays as they lie in memory. Starts and shuffle are 64-bit numbers where 32 bits do not
  // hold them.
  struct Arrays {
    std::span<const int32_t> documents;
    std::span<const int32_t> starts;
    std::span<const int64_t> wide_starts;
    std::span<const uint32_t> shuffle;
    std::span<const int64_t> wide_shuffle;
  };
  Arrays arrays() const { return {documents_, starts_, wide_starts_, shuffle_, wide_shuffle_}; }
  // Over arrays that `memory` keeps alive.
  GptIndex(const Arrays& arrays, std::shared_ptr<const void> memory);

 private:
  std::shared_ptr<const void> memory_;
  std::span<const int32_t> documents_, starts_;
  std::span<const int64_t> wide_starts_, wide_shuffle_;
  std::span<const uint32_t> shuffle_;
  int64_t num_samples_ = 0;
};

// The range of split `k` of a --split: shares are those of training, validation and test and add up
// to 1. Nothing if the split has no share.
std::optional<SequenceRange> split_range(std::span<const double> shares, int k,
                                         int64_t num_sequences);

}  // namespace phx
