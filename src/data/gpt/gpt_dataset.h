// Samples of a GPT dataset: tokens by the index, with masks and positions as Megatron makes them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "phalanx/data/gpt/gpt_index.h"
#include "phalanx/data/sample_source.h"
#include "phalanx/data/sequence_store.h"

namespace phx {

// What is made of a sample's tokens.
struct GptSampleOptions {
  int64_t seq_length = 0;
  std::optional<int32_t> eod;  // ends a document; the next three look for it
  bool mask_eod_loss = false;  // no loss where the input is the end of a document
  bool reset_positions = false;
  bool reset_attention = false;
  // Documents are kept apart where they were joined, whether or not a token says so.
  bool inter_document = false;
  std::optional<int32_t> pad;  // no loss where this is the label; becomes token 0
  bool may_pad = false;        // samples have a mask whether or not there is such a token

  SampleParts parts() const;
};

class GptDataset : public SampleSource {
 public:
  // `what`: "969 of 1000 documents of PREFIX".
  GptDataset(std::shared_ptr<const SequenceStore> store, GptIndex index,
             const GptSampleOptions& options, std::string what);

  void sample(int64_t index, Sample& out) const override;
  SampleParts parts() const override { return options_.parts(); }
  std::optional<int64_t> num_samples() const override { return index_.num_samples(); }
  std::string description() const override;
  const GptIndex& index() const { return index_; }

 private:
  void read(int64_t sample, Sample& out) const;
  void mark_documents(Sample& out) const;
  void mask(Sample& out) const;

  std::shared_ptr<const SequenceStore> store_;
  GptIndex index_;
  GptSampleOptions options_;
  std::string what_;
};

// A source that is made when the first sample is asked for.
class LateSource : public SampleSource {
 public:
  using Make = std::function<std::shared_ptr<const SampleSource>()>;
  LateSource(Make make, SampleParts parts, std::string description)
      : make_(std::move(make)), parts_(parts), description_(std::move(description)) {}
  void sample(int64_t index, Sample& out) const override { source().sample(index, out); }
  SampleParts parts() const override { return parts_; }
  std::optional<int64_t> num_samples() const override { return source().num_samples(); }
  std::string description() const override { return description_; }

 private:
  const SampleSource& source() const {
    std::call_once(once_, [this] { source_ = make_(); });
    return *source_;
  }
  Make make_;
  SampleParts parts_;
  std::string description_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const SampleSource> source_;
};

}  // namespace phx
