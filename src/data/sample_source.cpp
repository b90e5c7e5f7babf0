#include "phalanx/data/sample_source.h"

#include "phalanx/base/error.h"

namespace phx {

const char* split_name(Split split) {
  return split == Split::train ? "training" : split == Split::valid ? "validation" : "test";
}

namespace {

SampleRange range_of(const TokenFile& file, Split split, int64_t seq_length,
                     const std::array<double, 3>& shares) {
  const SampleSplit parts = file.split(seq_length, shares);
  const SampleRange range = split == Split::train   ? parts.train
                            : split == Split::valid ? parts.valid
                                                    : parts.test;
  PHX_CHECK(range.count > 0, "the token file has ", file.num_tokens(), " tokens, too few for one ",
            split_name(split), " sample of ", seq_length + 1,
            "\n  hint: a shorter --seq-length, or another --split");
  return range;
}

}  // namespace

TokenFileSource::TokenFileSource(std::shared_ptr<const TokenFile> file, Split split,
                                 int64_t seq_length, const std::array<double, 3>& shares,
                                 uint64_t seed)
    : file_(std::move(file)),
      seq_length_(seq_length),
      range_(range_of(*file_, split, seq_length, shares)),
      split_(split),
      order_(seed, range_.count) {}

void TokenFileSource::sample(int64_t index, Sample& out) const {
  const int64_t place = split_ == Split::train ? order_.at(index) : index % range_.count;
  // Labels are the tokens one place on: s + 1 tokens are read, the last goes to the labels alone.
  out.tokens.resize(size_t(seq_length_) + 1);
  file_->sample(range_.first + place, out.tokens);
  out.labels.assign(out.tokens.begin() + 1, out.tokens.end());
  out.tokens.pop_back();
}

std::string TokenFileSource::description() const {
  return str_cat(range_.count, " ", split_name(split_), " samples of a file of ",
                 file_->num_tokens(), " tokens");
}

}  // namespace phx
