#include "phalanx/data/indexed/indexed_dataset.h"

#include <bit>
#include <limits>

#include "phalanx/base/error.h"

namespace phx {

static_assert(std::endian::native == std::endian::little, "token files are read as they lie");

namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kHeaderBytes = 34;
constexpr uint64_t kMostEntries = uint64_t{1} << 58;  // so that sizes in bytes fit 64 bits

Path with_suffix(Path prefix, const char* suffix) {
  prefix += suffix;
  return prefix;
}

template <class T>
T read_at(const std::byte* data, int64_t at) {
  T value;
  std::memcpy(&value, data + at, sizeof(T));
  return value;
}

template <class T>
void widen(const std::byte* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(value);
  }
}

}  // namespace

Path bin_file(const Path& prefix) { return with_suffix(prefix, ".bin"); }
Path idx_file(const Path& prefix) { return with_suffix(prefix, ".idx"); }

IndexedDataset::IndexedDataset(const Path& prefix)
    : prefix_(prefix), idx_(idx_file(prefix)), bin_(bin_file(prefix)) {
  read_header();
  check_ends();
}

void IndexedDataset::broken(const std::string& what) const {
  throw_error(str_cat(idx_.path().native(), ": ", what));
}

void IndexedDataset::read_header() {
  const int64_t size = idx_.size();
  const std::byte* data = idx_.data();
  if (size < kHeaderBytes)
    broken(str_cat("has ", size, " bytes, but the header of an index alone has ", kHeaderBytes,
                   ": the file is cut off, or no Megatron index"));
  if (std::memcmp(data, kMagic, sizeof kMagic) != 0)
    broken("does not begin with MMIDIDX: this is no index of Megatron's");
  const auto version = read_at<uint64_t>(data, 9);
  if (version != 1) broken(str_cat("has version ", version, "; version 1 is the one there is"));
  const auto code = read_at<uint8_t>(data, 17);
  const std::optional<int> token_size = size_of_code(code);
  if (!token_size) broken(str_cat("names type ", int{code}, " for tokens; types are 1 to 8"));
  code_ = TokenCode{code};
  token_size_ = *token_size;
  if (code_ == TokenCode::f32 || code_ == TokenCode::f64)
    broken(str_cat("holds ", name_of_code(code_), " values; tokens are integers"));

  const auto sequences = read_at<uint64_t>(data, 18), entries = read_at<uint64_t>(data, 26);
  if (sequences > kMostEntries || entries > kMostEntries)
    broken(str_cat("claims ", sequences, " sequences and ", entries,
                   " document entries, more than any file holds"));
  num_sequences_ = int64_t(sequences);
  num_document_entries_ = int64_t(entries);
  const int64_t wanted = kHeaderBytes + 12 * num_sequences_ + 8 * num_document_entries_;
  if (size == wanted + num_sequences_ && num_sequences_ > 0)
    broken("has a mode for every sequence: multimodal data is not in this build");
  if (size != wanted)
    broken(
        str_cat("has ", size, " bytes, but ", num_sequences_, " sequences and ",
                num_document_entries_, " document entries take ", wanted,
                size < wanted ? ": the file is cut off" : ": it has bytes that nothing explains"));
  if (num_document_entries_ < 1)
    broken("has no document entries; even without documents it has one");
  lengths_ = data + kHeaderBytes;
  pointers_ = lengths_ + 4 * num_sequences_;
  documents_ = pointers_ + 8 * num_sequences_;
}

void IndexedDataset::check_ends() const {
  if (document_start(0) != 0)
    broken(str_cat("lets the first document begin at sequence ", document_start(0), ", not 0"));
  if (document_start(num_document_entries_ - 1) != num_sequences_)
    broken(str_cat("lets the documents end at sequence ", document_start(num_document_entries_ - 1),
                   ", but has ", num_sequences_, " sequences"));
  int64_t bytes = 0;
  if (num_sequences_ > 0) {
    check_sequences(0, 1);
    const int64_t last = num_sequences_ - 1;
    if (length(last) < 0) check_sequences(last, num_sequences_);
    bytes = pointer(last) + int64_t{length(last)} * token_size_;
  }
  PHX_CHECK(
      bytes == bin_.size(), bin_.path().native(), " has ", bin_.size(), " bytes, but ",
      idx_.path().filename().native(), " describes ", bytes,
      bin_.size() < bytes ? ": the file is cut off" : ": the two files do not belong together");
  if (num_sequences_ > 0) check_sequences(num_sequences_ - 1, num_sequences_);
}

void IndexedDataset::check_sequences(int64_t begin, int64_t end) const {
  for (int64_t i = begin; i < end; ++i) {
    const int32_t tokens = length(i);
    if (tokens < 0) broken(str_cat("sequence ", i, " has a length of ", tokens));
    int64_t wanted = 0;
    if (i > 0 && i > begin) {
      wanted = pointer(i - 1) + int64_t{length(i - 1)} * token_size_;
    } else if (i > 0) {  // the first of a range: what came before may be broken, too
      if (length(i - 1) < 0)
        broken(str_cat("sequence ", i - 1, " has a length of ", length(i - 1)));
      if (pointer(i - 1) < 0 || pointer(i - 1) > bin_.size())
        broken(str_cat("sequence ", i - 1, " begins at byte ", pointer(i - 1), " of a file of ",
                       bin_.size()));
      wanted = pointer(i - 1) + int64_t{length(i - 1)} * token_size_;
    }
    if (pointer(i) != wanted)
      broken(str_cat("sequence ", i, " begins at byte ", pointer(i),
                     ", but the one before ends at ", wanted));
  }
}

void IndexedDataset::check_documents() const {
  int64_t last = 0;
  for (int64_t i = 0; i < num_document_entries_; ++i) {
    const int64_t start = document_start(i);
    if (start < last || start > num_sequences_)
      broken(str_cat("document ", i, " begins at sequence ", start, ", after one that begins at ",
                     last, " of ", num_sequences_));
    last = start;
  }
}

void IndexedDataset::check_all() const {
  check_sequences(0, num_sequences_);
  check_documents();
}

const std::byte* IndexedDataset::tokens_at(int64_t sequence, int64_t offset, int64_t count) const {
  PHX_CHECK(sequence >= 0 && sequence < num_sequences_, prefix_.native(), ": sequence ", sequence,
            " of ", num_sequences_);
  const int64_t begin = pointer(sequence), tokens = length(sequence);
  PHX_CHECK(offset >= 0 && count >= 0 && offset + count <= tokens, prefix_.native(), ": tokens [",
            offset, ", ", offset + count, ") of sequence ", sequence, ", which has ", tokens);
  PHX_CHECK(begin >= 0 && begin <= bin_.size() - (offset + count) * token_size_,
            idx_.path().native(), ": sequence ", sequence, " begins at byte ", begin, " and has ",
            tokens, " tokens, but the .bin file has ", bin_.size(), " bytes");
  return bin_.data() + begin + offset * token_size_;
}

void IndexedDataset::copy(int64_t sequence, int64_t offset, std::span<int32_t> out) const {
  if (out.empty()) return;
  const std::byte* from = tokens_at(sequence, offset, int64_t(out.size()));
  switch (code_) {
    case TokenCode::u16:
      return widen<uint16_t>(from, out);
    case TokenCode::i32:
      std::memcpy(out.data(), from, out.size_bytes());
      return;
    case TokenCode::u8:
      return widen<uint8_t>(from, out);
    case TokenCode::i8:
      return widen<int8_t>(from, out);
    case TokenCode::i16:
      return widen<int16_t>(from, out);
    case TokenCode::i64:
      for (size_t i = 0; i < out.size(); ++i) {
        const auto value = read_at<int64_t>(from, int64_t(i) * 8);
        PHX_CHECK(value == int64_t{int32_t(value)}, bin_.path().native(), ": token ",
                  offset + int64_t(i), " of sequence ", sequence, " is ", value,
                  ", which no vocabulary holds");
        out[i] = int32_t(value);
      }
      return;
    case TokenCode::f32:
    case TokenCode::f64:
      break;  // refused when the file was opened
  }
  PHX_ASSERT(false, "tokens of type ", name_of_code(code_));
}

std::span<const std::byte> IndexedDataset::sequence_bytes(int64_t sequence) const {
  PHX_CHECK(sequence >= 0 && sequence < num_sequences_, prefix_.native(), ": sequence ", sequence,
            " of ", num_sequences_);
  const int64_t tokens = length(sequence);
  return {tokens_at(sequence, 0, tokens), size_t(tokens * token_size_)};
}

}  // namespace phx
