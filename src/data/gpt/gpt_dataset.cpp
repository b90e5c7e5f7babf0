#include "phalanx/data/gpt/gpt_dataset.h"

#include <algorithm>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {

SampleParts GptSampleOptions::parts() const {
  const bool packed = reset_attention || inter_document;
  // Packed sequences of several samples lie in one row, where a place is no position.
  return {.loss_mask = mask_eod_loss || may_pad || pad.has_value(),
          .positions = reset_positions || packed,
          .cu_seqlens = packed};
}

GptDataset::GptDataset(std::shared_ptr<const SequenceStore> store, GptIndex index,
                       const GptSampleOptions& options, std::string what)
    : store_(std::move(store)),
      index_(std::move(index)),
      options_(options),
      what_(std::move(what)) {
  const bool looks = options.mask_eod_loss || options.reset_positions || options.reset_attention;
  PHX_CHECK(!looks || options.eod.has_value(),
            "documents are told apart by the end-of-document token, but the tokenizer has none");
}

std::string GptDataset::description() const {
  return str_cat(format_thousands(index_.num_samples()), " samples of ", what_);
}

void GptDataset::sample(int64_t index, Sample& out) const {
  PHX_CHECK(index >= 0 && index < index_.num_samples(), "sample ", index, " of ", description(),
            " does not exist");
  const int64_t sample = index_.shuffled(index);
  PHX_CHECK(sample >= 0 && sample < index_.num_samples(), store_->name(),
            ": the index says sample ", sample, " of ", index_.num_samples(),
            "\n  hint: remove the cached index");
  read(sample, out);
  mark_documents(out);
  mask(out);
}

// The s + 1 tokens of a sample into out.tokens, of which all but the first become the labels. Where
// documents begin goes to out.cu_seqlens if they are kept apart there.
void GptDataset::read(int64_t sample, Sample& out) const {
  const int64_t s = options_.seq_length;
  const GptIndex::Start begin = index_.start(sample), end = index_.start(sample + 1);
  const LengthsView lengths = store_->lengths();
  out.tokens.resize(size_t(s) + 1);
  out.cu_seqlens.clear();
  if (options_.inter_document) out.cu_seqlens.push_back(0);
  const std::span<int32_t> tokens = out.tokens;
  int64_t filled = 0;
  for (int64_t position = begin.position; position <= end.position; ++position) {
    PHX_CHECK(position >= 0 && position < index_.num_documents() &&
                  uint32_t(index_.document(position)) < uint64_t(lengths.count),
              store_->name(), ": the index names document ", position, " of ",
              index_.num_documents(), "\n  hint: remove the cached index");
    const int32_t document = index_.document(position);
    const int64_t from = position == begin.position ? begin.offset : 0;
    const int64_t to = position == end.position ? end.offset + 1 : int64_t{lengths[document]};
    PHX_CHECK(from >= 0 && from <= to && filled + to - from <= s + 1, store_->name(), ": sample ",
              sample, " takes tokens [", from, ", ", to, ") of document ", document,
              "\n  hint: remove the cached index");
    store_->copy(document, from, tokens.subspan(size_t(filled), size_t(to - from)));
    filled += to - from;
    const auto boundary = int32_t(std::min(filled, s));
    if (options_.inter_document && boundary > out.cu_seqlens.back())
      out.cu_seqlens.push_back(boundary);
  }
  PHX_CHECK(filled == s + 1, store_->name(), ": sample ", sample, " has ", filled, " tokens, not ",
            s + 1, "\n  hint: remove the cached index");
  out.labels.assign(tokens.begin() + 1, tokens.end());
  out.tokens.pop_back();
}

void GptDataset::mark_documents(Sample& out) const {
  const auto s = int32_t(options_.seq_length);
  out.positions.clear();
  if (options_.reset_attention) {
    out.cu_seqlens.assign(1, 0);
    for (int32_t i = 0; i + 1 < s; ++i)
      if (out.tokens[size_t(i)] == *options_.eod) out.cu_seqlens.push_back(i + 1);
    out.cu_seqlens.push_back(s);
  }
  if (!parts().positions) return;
  out.positions.resize(size_t(s));
  if (options_.inter_document) {
    for (size_t k = 0; k + 1 < out.cu_seqlens.size(); ++k)
      for (int32_t i = out.cu_seqlens[k]; i < out.cu_seqlens[k + 1]; ++i)
        out.positions[size_t(i)] = i - out.cu_seqlens[k];
    return;
  }
  int32_t first = 0;
  for (int32_t i = 0; i < s; ++i) {
    out.positions[size_t(i)] = i - first;
    if (options_.reset_positions && out.tokens[size_t(i)] == *options_.eod) first = i + 1;
  }
}

void GptDataset::mask(Sample& out) const {
  out.loss_mask.clear();
  if (!parts().loss_mask) return;
  const auto s = size_t(options_.seq_length);
  out.loss_mask.assign(s, 1);
  if (options_.mask_eod_loss)
    for (size_t i = 0; i < s; ++i) out.loss_mask[i] = out.tokens[i] != *options_.eod;
  if (!options_.pad) return;
  const int32_t pad = *options_.pad;
  for (size_t i = 0; i < s; ++i) {
    if (out.labels[i] == pad) {
      out.loss_mask[i] = 0;
      out.labels[i] = 0;
    }
    if (out.tokens[i] == pad) out.tokens[i] = 0;
  }
}

}  // namespace phx
