// Moves bytes between the ranks of one group; no arithmetic, no tensors. Used from one thread.
// What the ranks pass must fit together: where rank a sends n bytes to b, b has room for n from a.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

using ByteView = std::span<const std::byte>;
using ByteRoom = std::span<std::byte>;

// A wait that cannot or will not end: `what` says how that is known ("nothing moved for 600 s").
class Stalled : public Error {
 public:
  using Error::Error;
};

// The ranks disagree on how many bytes go from one to another.
class SizeMismatch : public Error {
 public:
  SizeMismatch(int peer, size_t sent, size_t expected)
      : Error(str_cat("rank ", peer, " of the group sends ", sent, " bytes where ", expected,
                      " are expected")),
        peer(peer) {}
  int peer;  // rank within the group
};

class ByteTransport {
 public:
  ByteTransport(int rank, int size) : rank_(rank), size_(size) {}
  virtual ~ByteTransport() = default;
  ByteTransport(const ByteTransport&) = delete;
  ByteTransport& operator=(const ByteTransport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // to[r] goes to rank r, from[r] is filled by rank r; the entries of this rank itself are ignored.
  // An empty entry moves nothing. On return the caller may reuse all buffers.
  virtual void all_to_all(std::span<const ByteView> to, std::span<const ByteRoom> from) = 0;
  // Buffered: copies the bytes and never waits for the peer. Between two ranks messages keep their
  // order; they never mix with collectives.
  virtual void send(ByteView bytes, int peer) = 0;
  virtual void receive(ByteRoom room, int peer) = 0;
  // By rounds in which everybody tells the rank 1, 2, 4.. places further; a backend may know
  // better.
  virtual void barrier();
  // This rank gives up: waits of the others throw.
  virtual void fail(const std::string& why) = 0;

 private:
  int rank_, size_;
};

// Bytes on the heap, not filled with anything.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t capacity)
      : memory_(std::make_unique_for_overwrite<std::byte[]>(capacity)), capacity_(capacity) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() { return memory_.get(); }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  ByteRoom room() { return {memory_.get(), size_}; }
  void set_size(size_t bytes) { size_ = bytes; }  // at most capacity()

 private:
  void swap(Buffer& other) {
    std::swap(memory_, other.memory_);
    std::swap(capacity_, other.capacity_);
    std::swap(size_, other.size_);
  }

  std::unique_ptr<std::byte[]> memory_;
  size_t capacity_ = 0, size_ = 0;
};

// Buffers that are used again, so that a steady step of messages allocates nothing.
class BufferPool {
 public:
  Buffer take(size_t bytes);  // of this size
  Buffer copy_of(ByteView bytes);
  void give_back(Buffer buffer);

 private:
  static constexpr size_t kMostKept = 64;
  std::vector<Buffer> free_;
};

}  // namespace phx
