// Text files as blocks of whole lines or as whole documents: plain, .gz or .zst, files, pipes and
// standard input.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/file.h"

namespace phx {

// The bytes of a file, decompressed if its name ends in .gz or .zst; "-" is standard input. A
// binary file that has another name is refused for what it is.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual size_t read(std::span<char> out) = 0;  // fills out, but for the end of the file
  virtual int64_t bytes_in() const = 0;          // of the file itself, read so far
};
std::unique_ptr<ByteStream> open_stream(const Path& path);

enum class TextKind {
  json_lines,
  plain,  // a document a line
  whole,  // the file is one document
};
// By the name, without .gz or .zst: .txt is plain, others are JSON lines. Formats that are no text
// at all (.parquet ..) are refused by name.
TextKind kind_of_text(const Path& path);

struct TextInput {
  TextInput(Path path) : path(std::move(path)), kind(kind_of_text(this->path)) {}
  TextInput(Path path, TextKind kind) : path(std::move(path)), kind(kind) {}
  Path path;
  TextKind kind;
};

// Lines of one file, or all of a file that is one document; the last line with or without a
// line feed. Memory behind the last line can be read up to kPadding bytes, as simdjson wants it.
struct LineBlock {
  static constexpr size_t kPadding = 64;
  size_t file = 0;          // of the inputs
  int64_t first_line = 1;   // of that file
  int64_t first_index = 0;  // of all files' lines
  std::vector<char> memory;
  size_t size = 0;
  std::string_view text() const { return {memory.data(), size}; }
};

class BlockReader {
 public:
  explicit BlockReader(std::vector<TextInput> files, size_t block_bytes = size_t{2} << 20);

  // The next block; false after the last.
  bool next(LineBlock& block);

  int64_t bytes_in() const;                             // read so far, of what lies on the disk
  int64_t bytes_total() const { return bytes_total_; }  // 0 if a pipe is among the files
  int64_t bytes_text() const { return bytes_text_; }    // after decompression

 private:
  bool fill(LineBlock& block);

  std::vector<TextInput> files_;
  size_t block_bytes_;
  size_t file_ = 0;
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> rest_;  // the beginning of a line whose end is not read yet
  int64_t line_ = 1, index_ = 0;
  int64_t bytes_before_ = 0, bytes_total_ = 0, bytes_text_ = 0;
};

// Files that patterns with *, ? and [..] stand for, in the order of their names; a name without
// them stands for itself. A pattern that nothing fits is an error.
std::vector<Path> expand_patterns(std::span<const std::string> patterns);

// The same as inputs. A folder stands for all files in it and below, in the order of their names,
// without hidden ones: .jsonl and .json files hold a document a line, any other file is a document.
std::vector<TextInput> find_inputs(std::span<const std::string> patterns);

}  // namespace phx
