// Writes a pair PREFIX.bin, PREFIX.idx. Both appear under their names only when they are complete
// and on disk: first the tokens, then the index, without which the tokens are no pair. Whenever the
// machine stops, there is the old pair, the new one, or tokens without an index, which are none; an
// index never stands beside tokens that are not its own. Memory does not grow with the number of
// sequences: lengths wait in a nameless file beside the output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/data/indexed/token_code.h"

namespace phx {

class IndexedDataset;

// Numbers put aside until the end, in a file without a name that goes away by itself.
class SpillFile {
 public:
  explicit SpillFile(const Path& beside);
  void write(std::span<const std::byte> bytes);
  // f(bytes) over all that was written, in order, a piece at a time.
  template <class F>
  void read_back(F&& f) {
    flush();
    std::vector<std::byte> piece(size_t{1} << 20);
    for (int64_t at = 0; at < size_;) {
      const int64_t count = read_at(at, piece);
      f(std::span<const std::byte>(piece).first(size_t(count)));
      at += count;
    }
  }
  int64_t size() const { return size_ + int64_t(buffer_.size()); }

 private:
  void flush();
  int64_t read_at(int64_t at, std::span<std::byte> piece) const;

  Path name_;  // for errors
  FileHandle file_;
  std::vector<std::byte> buffer_;
  int64_t size_ = 0;
};

class IndexedWriter {
 public:
  IndexedWriter(const Path& prefix, TokenCode code, Disk& disk = Disk::real());

  // One sequence, checked against the type; end_document() after the last of a document.
  void add_sequence(std::span<const int32_t> tokens);
  void end_document();
  // Many sequences, each a document of its own: bytes of the file's type, and lengths in tokens. A
  // length of 0 is an empty document, which has no sequence.
  // When the pair is committed, the lengths add up to the tokens.
  void add_tokens(std::span<const std::byte> tokens) { bin_.write(tokens); }
  void add_lengths(std::span<const int32_t> lengths);
  // All of a pair of the same type.
  void add_dataset(const IndexedDataset& dataset);

  // Puts the pair in place. If that fails, an older pair stays as long as its tokens are there.
  // Then removes what processes that were killed while they wrote this pair have left.
  void commit();

  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return bin_.size() / size_of_code(code_); }

 private:
  void write_index();
  void publish() const;

  // A complete file under a name that nobody reads; it goes away if it was not renamed.
  struct Staged {
    Path path;
    Disk& disk;
    ~Staged() { disk.remove(path.c_str()); }
  };

  Path prefix_;
  TokenCode code_;
  Disk& disk_;
  Staged staged_bin_, staged_idx_;
  AtomicFile bin_, idx_;
  SpillFile lengths_, documents_;  // i32 of each sequence; i64: where each document ends
  int64_t num_sequences_ = 0, num_documents_ = 0;
  std::vector<std::byte> narrow_;
};

// Tokens as they lie in a file of type `code`, appended to `out`; one that does not fit is an error
// that says so.
void append_tokens(std::span<const int32_t> tokens, TokenCode code, std::vector<std::byte>& out);

// PREFIX of the pairs `inputs`, one after the other: they have one type.
void merge_datasets(std::span<const Path> inputs, const Path& output);

}  // namespace phx
