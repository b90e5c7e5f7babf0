#include "data/sample_source.h"

#include <algorithm>

#include "base/error.h"

namespace phx {

namespace {

const char* name(Split split) {
  return split == Split::train ? "training" : split == Split::valid ? "validation" : "test";
}

SampleRange range_of(const TokenFile& file, Split split, int64_t seq_length,
                     const std::array<double, 3>& shares) {
  const SampleSplit parts = file.split(seq_length, shares);
  const SampleRange range = split == Split::train   ? parts.train
                            : split == Split::valid ? parts.valid
                                                    : parts.test;
  PHX_CHECK(range.count > 0, "the token file has ", file.num_tokens(), " tokens, too few for one ",
            name(split), " sample of ", seq_length + 1,
            "\n  hint: a shorter --seq-length, or another --split");
  return range;
}

}  // namespace

TokenFileSource::TokenFileSource(std::shared_ptr<const TokenFile> file, Split split,
                                 int64_t seq_length, const std::array<double, 3>& shares,
                                 uint64_t seed)
    : file_(std::move(file)),
      range_(range_of(*file_, split, seq_length, shares)),
      split_(split),
      order_(seed, range_.count) {}

void TokenFileSource::sample(int64_t index, std::span<int32_t> out) const {
  const int64_t place = split_ == Split::train ? order_.at(index) : index % range_.count;
  file_->sample(range_.first + place, out);
}

std::string TokenFileSource::description() const {
  return str_cat(range_.count, " ", name(split_), " samples of a file of ", file_->num_tokens(),
                 " tokens");
}

MockSource::MockSource(int32_t vocab_size, int32_t eod) : documents_(vocab_size, eod) {
  int64_t end = 0;
  for (int32_t length : documents_.lengths()) ends_.push_back(end += length);
}

void MockSource::sample(int64_t index, std::span<int32_t> out) const {
  const int64_t total = ends_.back(), seq_length = int64_t(out.size()) - 1;
  int64_t at = (index * seq_length) % total;
  size_t filled = 0;
  while (filled < out.size()) {
    const auto document = std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin();
    const int64_t begin = document == 0 ? 0 : ends_[document - 1];
    const auto count = std::min<int64_t>(ends_[document] - at, int64_t(out.size() - filled));
    documents_.copy(document, at - begin, out.subspan(filled, count));
    filled += count;
    at = (at + count) % total;
  }
}

}  // namespace phx
