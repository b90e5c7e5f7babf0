// A raw token file: nothing but token ids, little endian, no header. The suffix says how wide an id
// is: tokens.u16 holds unsigned 16-bit ids, tokens.i32 signed 32-bit ones. For .bin/.idx pairs see
// Megatron's format; this one is for a first run, and for tokens made by other programs
// (numpy: array.astype("<u2").tofile("tokens.u16")).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "phalanx/base/file.h"

namespace phx {

enum class TokenType { u16, i32 };

int token_size(TokenType type);  // in bytes

// From the suffix .u16 or .i32; an error names both when it is neither.
TokenType token_type_of(const Path& path);

// A run of consecutive samples: [first, first + count).
struct SampleRange {
  int64_t first = 0;
  int64_t count = 0;
};

struct SampleSplit {
  SampleRange train, valid, test;
};

class TokenFile {
 public:
  // The type of another suffix must be given.
  explicit TokenFile(const Path& path, std::optional<TokenType> type = {});

  int64_t num_tokens() const { return num_tokens_; }
  int32_t token(int64_t index) const;

  // Sample i is the seq_length + 1 tokens from i * seq_length on: inputs are all but the last of
  // them, labels all but the first. Neighbours share one token, so none is lost as a label.
  int64_t num_samples(int64_t seq_length) const;
  void sample(int64_t index, std::span<int32_t> out) const;  // out: [seq_length + 1]
  std::vector<int32_t> sample(int64_t index, int64_t seq_length) const;

  // Training, validation and test samples, one after the other, by their shares of 1. A share above
  // 0 has at least one sample.
  SampleSplit split(int64_t seq_length, const std::array<double, 3>& shares) const;

  // The largest id, to be checked against the vocabulary before training. Reads the whole file.
  int32_t largest_token() const;

 private:
  MappedFile file_;
  TokenType type_;
  int64_t num_tokens_ = 0;
};

// Writes tokens as they come; the file is there after `commit`.
class TokenFileWriter {
 public:
  explicit TokenFileWriter(const Path& path, std::optional<TokenType> type = {});

  void append(std::span<const int32_t> tokens);
  void commit() { file_.commit(); }
  int64_t num_tokens() const { return file_.size() / token_size(type_); }

 private:
  AtomicFile file_;
  TokenType type_;
};

}  // namespace phx
