#include "phalanx/checkpoint/torch/pickle_writer.h"

#include <cstring>
#include <limits>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"

namespace phx {

template <class T>
void PickleWriter::number(T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  bytes_.append(raw, sizeof(T));
}

PickleWriter::PickleWriter() {
  op(0x80);
  op(2);
}

void PickleWriter::none() { op('N'); }

void PickleWriter::boolean(bool value) { op(value ? 0x88 : 0x89); }

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value < 256) {
    op('K');
    number(static_cast<uint8_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    op('J');
    number(static_cast<int32_t>(value));
  } else {
    op(0x8a);
    number(uint8_t{8});
    number(value);
  }
}

void PickleWriter::real(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  op('G');
  number(__builtin_bswap64(bits));
}

void PickleWriter::text(std::string_view value) {
  op('X');
  number(narrow<uint32_t>(value.size()));
  bytes_ += value;
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  const std::string full = str_cat(module, "\n", name, "\n");
  const auto [entry, is_new] = memo_.try_emplace(full, static_cast<uint32_t>(memo_.size()));
  if (!is_new) {
    op('j');
    return number(entry->second);
  }
  op('c');
  bytes_ += full;
  op('r');
  number(entry->second);
}

void PickleWriter::integers(std::span<const int64_t> values) {
  tuple([&] {
    for (const int64_t value : values) integer(value);
  });
}

void PickleWriter::size(std::span<const int64_t> dims) {
  call("torch", "Size", [&] { integers(dims); });
}

const std::string& PickleWriter::finish() {
  op('.');
  return bytes_;
}

}  // namespace phx
