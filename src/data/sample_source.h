// Samples by number. The training loop does not know where tokens come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/data/sample_order.h"
#include "phalanx/data/token_file.h"

namespace phx {

// One sample of s tokens, as the model sees it. A reader passes the same Sample to every call, so
// that its memory is allocated once.
struct Sample {
  std::vector<int32_t> tokens, labels;  // [s] each: inputs, and what is to be predicted from them
  // What SampleParts does not promise is left empty.
  std::vector<uint8_t> loss_mask;   // [s]: 1 where the label counts for the loss
  std::vector<int32_t> positions;   // [s]: of a token in its document
  std::vector<int32_t> cu_seqlens;  // rises from 0 to s: where sequences that do not see each other
                                    // begin and end
};

// What the samples of a source hold beside tokens and labels. Without a mask every label counts.
// Without positions they count up from 0. Without cu_seqlens a sample is one sequence.
struct SampleParts {
  bool loss_mask = false;
  bool positions = false;
  bool cu_seqlens = false;
  bool any() const { return loss_mask || positions || cu_seqlens; }
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // The sample at place `index` of the run's order: a pure function. Called from several threads.
  virtual void sample(int64_t index, Sample& out) const = 0;
  virtual SampleParts parts() const { return {}; }
  // How many there are; nothing if any index can be asked for.
  virtual std::optional<int64_t> num_samples() const { return std::nullopt; }
  virtual std::string description() const = 0;
};

// Repeats another source: after its last sample comes its first.
class RepeatedSource : public SampleSource {
 public:
  explicit RepeatedSource(std::shared_ptr<const SampleSource> source)
      : source_(std::move(source)) {}
  void sample(int64_t index, Sample& out) const override {
    const std::optional<int64_t> count = source_->num_samples();
    source_->sample(count ? index % *count : index, out);
  }
  SampleParts parts() const override { return source_->parts(); }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
};

enum class Split { train, valid, test };
const char* split_name(Split split);  // "training", "validation", "test"

// A raw token file: training samples shuffled anew each epoch, validation and test in file order.
class TokenFileSource : public SampleSource {
 public:
  TokenFileSource(std::shared_ptr<const TokenFile> file, Split split, int64_t seq_length,
                  const std::array<double, 3>& shares, uint64_t seed);
  void sample(int64_t index, Sample& out) const override;
  std::string description() const override;
  int64_t samples_in_file() const { return range_.count; }

 private:
  std::shared_ptr<const TokenFile> file_;
  int64_t seq_length_;
  SampleRange range_;
  Split split_;
  SampleOrder order_;
};

}  // namespace phx
