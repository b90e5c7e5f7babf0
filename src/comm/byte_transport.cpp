#include "phalanx/comm/byte_transport.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace phx {

void ByteTransport::barrier() {
  const std::array<std::byte, 1> token{};
  std::array<std::byte, 1> got{};
  for (int step = 1; step < size_; step *= 2) {
    std::vector<ByteView> to(size_);
    std::vector<ByteRoom> from(size_);
    to[(rank_ + step) % size_] = token;
    from[(rank_ + size_ - step) % size_] = got;
    all_to_all(to, from);
  }
}

Buffer BufferPool::take(size_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->capacity() >= bytes && (best == free_.end() || it->capacity() < best->capacity()))
      best = it;
  Buffer buffer;
  if (best != free_.end()) {
    buffer = std::move(*best);
    if (best != free_.end() - 1) *best = std::move(free_.back());
    free_.pop_back();
  } else {
    buffer = Buffer(bytes);
  }
  buffer.set_size(bytes);
  return buffer;
}

Buffer BufferPool::copy_of(ByteView bytes) {
  Buffer buffer = take(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

void BufferPool::give_back(Buffer buffer) {
  if (buffer.capacity() == 0) return;
  if (free_.size() >= kMostKept) {  // keeps the larger ones
    auto smallest = std::min_element(free_.begin(), free_.end(), [](const auto& a, const auto& b) {
      return a.capacity() < b.capacity();
    });
    if (smallest->capacity() < buffer.capacity()) *smallest = std::move(buffer);
    return;
  }
  free_.push_back(std::move(buffer));
}

}  // namespace phx
