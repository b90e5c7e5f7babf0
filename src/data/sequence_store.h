// Sequences of tokens by number: a pair of files, or documents made on the spot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace phx {

// Lengths of sequences, one after the other; not aligned, as they lie in a file.
struct LengthsView {
  const std::byte* data = nullptr;
  int64_t count = 0;
  int32_t operator[](int64_t i) const {
    int32_t length;
    std::memcpy(&length, data + 4 * i, 4);
    return length;
  }
  const std::byte* at(int64_t i) const { return data + 4 * i; }
};

class SequenceStore {
 public:
  virtual ~SequenceStore() = default;
  virtual LengthsView lengths() const = 0;
  // Tokens [offset, offset + out.size()) of a sequence.
  virtual void copy(int64_t sequence, int64_t offset, std::span<int32_t> out) const = 0;
  virtual std::string name() const = 0;  // for messages
};

}  // namespace phx
