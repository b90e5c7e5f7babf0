#include "phalanx/checkpoint/shard_bytes.h"

#include <algorithm>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/stream_copy.h"

namespace phx {

namespace {

// Bytes [begin, begin + out.size()) of one box.
void copy_of_box(const LocalBox& box, int64_t begin, std::span<std::byte> out, ReadNext next) {
  Runtime& runtime = box.flat.runtime();
  const bool streamed = next == ReadNext::later && runtime.kind() == DeviceKind::cpu;
  const int64_t element = size_of(box.info.dtype);
  const bool dense = box.cols == box.pitch || box.rows == 1;
  const int64_t row_bytes = box.bytes() / (dense ? 1 : box.rows);
  const auto* first = static_cast<const std::byte*>(box.flat.raw()) + box.offset * element;
  while (!out.empty()) {
    const int64_t row = begin / row_bytes, within = begin % row_bytes;
    const int64_t count = std::min(row_bytes - within, int64_t(out.size()));
    const std::byte* from = first + row * box.pitch * element + within;
    if (streamed) {
      stream_copy(out.data(), from, count);
    } else {
      runtime.backend().copy_to_host(out.data(), from, count, StreamName::d2h);
    }
    out = out.subspan(size_t(count));
    begin += count;
  }
}

}  // namespace

ShardBytes::ShardBytes(std::string header, std::span<const LocalBox> boxes)
    : header_(std::move(header)), boxes_(boxes), size_(int64_t(header_.size())) {
  for (const LocalBox& box : boxes) {
    starts_.push_back(size_);
    size_ += box.bytes();
  }
}

void ShardBytes::copy(int64_t begin, std::span<std::byte> out, ReadNext next) const {
  PHX_ASSERT(begin >= 0 && begin + int64_t(out.size()) <= size_, "bytes ", begin, " + ", out.size(),
             " of ", size_);
  const auto take = [&](int64_t count) {
    const auto part = out.first(size_t(std::min(count, int64_t(out.size()))));
    out = out.subspan(part.size());
    begin += int64_t(part.size());
    return part;
  };
  if (begin < int64_t(header_.size())) {
    const char* from = header_.data() + begin;
    const auto part = take(int64_t(header_.size()) - begin);
    std::memcpy(part.data(), from, part.size());
  }
  while (!out.empty()) {
    // The last box that begins here or before: boxes without bytes begin where the next one does.
    const size_t i = size_t(std::ranges::upper_bound(starts_, begin) - starts_.begin()) - 1;
    const int64_t within = begin - starts_[i];
    copy_of_box(boxes_[i], within, take(boxes_[i].bytes() - within), next);
  }
}

}  // namespace phx
