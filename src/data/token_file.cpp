#include "phalanx/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "phalanx/base/error.h"

namespace phx {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

constexpr int32_t kLargestU16 = 65535;

}  // namespace

int token_size(TokenType type) { return type == TokenType::u16 ? 2 : 4; }

TokenType token_type_of(const Path& path) {
  const Path suffix = path.extension();
  if (suffix == ".u16") return TokenType::u16;
  if (suffix == ".i32") return TokenType::i32;
  throw_error(str_cat(path.native(), ": the suffix of a token file tells the width of its ids; ",
                      "it should be .u16 (unsigned 16 bit) or .i32 (signed 32 bit)"));
}

TokenFile::TokenFile(const Path& path, std::optional<TokenType> type)
    : file_(path), type_(type ? *type : token_type_of(path)) {
  const int size = token_size(type_);
  PHX_CHECK(file_.size() % size == 0, path.native(), " has ", file_.size(),
            " bytes, which is no multiple of the ", size,
            " bytes of a token: the file is cut off, or its ids have another width");
  num_tokens_ = file_.size() / size;
}

int32_t TokenFile::token(int64_t index) const {
  PHX_ASSERT(index >= 0 && index < num_tokens_, "token ", index, " of ", num_tokens_);
  if (type_ == TokenType::u16) {
    uint16_t value;
    std::memcpy(&value, file_.data() + index * 2, 2);
    return value;
  }
  int32_t value;
  std::memcpy(&value, file_.data() + index * 4, 4);
  return value;
}

int64_t TokenFile::num_samples(int64_t seq_length) const {
  PHX_CHECK(seq_length > 0, "the sequence length should be above 0, but it is ", seq_length);
  return num_tokens_ == 0 ? 0 : (num_tokens_ - 1) / seq_length;
}

void TokenFile::sample(int64_t index, std::span<int32_t> out) const {
  const int64_t seq_length = static_cast<int64_t>(out.size()) - 1;
  PHX_CHECK(index >= 0 && index < num_samples(seq_length), file_.path().native(), ": sample ",
            index, " is not in 0..", num_samples(seq_length) - 1, " (", num_tokens_,
            " tokens, sequence length ", seq_length, ")");
  const int64_t first = index * seq_length;
  if (type_ == TokenType::i32) {
    std::memcpy(out.data(), file_.data() + first * 4, out.size_bytes());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) out[i] = token(first + static_cast<int64_t>(i));
}

std::vector<int32_t> TokenFile::sample(int64_t index, int64_t seq_length) const {
  PHX_CHECK(seq_length > 0, "the sequence length should be above 0, but it is ", seq_length);
  std::vector<int32_t> tokens(static_cast<size_t>(seq_length) + 1);
  sample(index, tokens);
  return tokens;
}

SampleSplit TokenFile::split(int64_t seq_length, const std::array<double, 3>& shares) const {
  const int64_t total = num_samples(seq_length);
  PHX_CHECK(total > 0, file_.path().native(), " has ", num_tokens_,
            " tokens; a sample needs sequence length + 1 = ", seq_length + 1);
  const auto count = [&](double share) {
    PHX_CHECK(share >= 0. && share <= 1., "a share of the samples should be in [0, 1], but one is ",
              share);
    return share > 0. ? std::max<int64_t>(1, std::llround(static_cast<double>(total) * share)) : 0;
  };
  // What rounding leaves over or lacks is training's.
  const int64_t valid = count(shares[1]), test = count(shares[2]);
  const int64_t train = shares[0] > 0. ? total - valid - test : 0;
  PHX_CHECK(train > 0 || (shares[0] == 0. && valid + test <= total), file_.path().native(), " has ",
            total, " samples, and ", valid, " for validation and ", test,
            " for the test leave none to train on");
  const int64_t valid_first = total - valid - test;
  return {{0, train}, {valid_first, valid}, {valid_first + valid, test}};
}

int32_t TokenFile::largest_token() const {
  int32_t largest = -1;
  for (int64_t i = 0; i < num_tokens_; ++i) largest = std::max(largest, token(i));
  return largest;
}

TokenFileWriter::TokenFileWriter(const Path& path, std::optional<TokenType> type)
    : file_(path), type_(type ? *type : token_type_of(path)) {}

void TokenFileWriter::append(std::span<const int32_t> tokens) {
  if (type_ == TokenType::i32) {
    file_.write(std::as_bytes(tokens));
    return;
  }
  std::vector<uint16_t> narrow(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    PHX_CHECK(tokens[i] >= 0 && tokens[i] <= kLargestU16, file_.path().native(), ": token ",
              tokens[i], " does not fit in 16 bits; name the file .i32");
    narrow[i] = static_cast<uint16_t>(tokens[i]);
  }
  file_.write(std::as_bytes(std::span<const uint16_t>(narrow)));
}

}  // namespace phx
