#include "phalanx/data/preprocess/text_input.h"

#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/base/file_kind.h"

namespace phx {
namespace {

constexpr const char* kStandardInput = "-";

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const Path& path)
      : path_(path),
        file_(path == kStandardInput ? ::dup(STDIN_FILENO)
                                     : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (!file_.is_open()) throw_file_error("read", path, errno);
    struct stat info {};
    if (::fstat(file_.get(), &info) == 0 && S_ISDIR(info.st_mode))
      throw_file_error("read", path, EISDIR);
    ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  size_t read(std::span<char> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::read(file_.get(), out.data() + done, out.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_file_error("read", path_, errno);
      if (n == 0) break;
      done += size_t(n);
    }
    bytes_ += int64_t(done);
    return done;
  }
  int64_t bytes_in() const override { return bytes_; }
  const Path& path() const { return path_; }

 private:
  Path path_;
  FileHandle file_;
  int64_t bytes_ = 0;
};

// What a decompressor reads from.
class CompressedInput {
 public:
  explicit CompressedInput(const Path& path) : file_(path), buffer_(size_t{1} << 18) {}
  // More bytes when those before are used up; false at the end of the file.
  bool refill() {
    size_ = file_.read(buffer_);
    return size_ > 0;
  }
  char* data() { return buffer_.data(); }
  size_t size() const { return size_; }
  int64_t bytes_in() const { return file_.bytes_in(); }
  [[noreturn]] void broken(const char* format, const char* what) const {
    throw_error(str_cat(file_.path().native(), ": the ", format, " data ", what));
  }

 private:
  PlainStream file_;
  std::vector<char> buffer_;
  size_t size_ = 0;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const Path& path) : input_(path) {
    PHX_CHECK(::inflateInit2(&zlib_, 16 + MAX_WBITS) == Z_OK, "zlib does not start");
  }
  ~GzipStream() override { ::inflateEnd(&zlib_); }

  size_t read(std::span<char> out) override {
    zlib_.next_out = reinterpret_cast<Bytef*>(out.data());
    zlib_.avail_out = uInt(out.size());
    while (zlib_.avail_out > 0) {
      if (zlib_.avail_in == 0) {
        if (!input_.refill()) {
          if (inside_) input_.broken("gzip", "is cut off");
          break;
        }
        zlib_.next_in = reinterpret_cast<Bytef*>(input_.data());
        zlib_.avail_in = uInt(input_.size());
      }
      if (!inside_) {  // a file may be several, one after the other
        ::inflateReset(&zlib_);
        inside_ = true;
      }
      const int status = ::inflate(&zlib_, Z_NO_FLUSH);
      if (status == Z_STREAM_END)
        inside_ = false;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        input_.broken("gzip", "is broken");
    }
    return out.size() - zlib_.avail_out;
  }
  int64_t bytes_in() const override { return input_.bytes_in(); }

 private:
  CompressedInput input_;
  z_stream zlib_{};
  bool inside_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const Path& path) : input_(path), zstd_(::ZSTD_createDCtx()) {
    PHX_CHECK(zstd_ != nullptr, "zstd does not start");
  }
  ~ZstdStream() override { ::ZSTD_freeDCtx(zstd_); }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      // A full output may leave decompressed bytes inside: ask again before reading more.
      if (from_.pos == from_.size && !flushing_) {
        if (!input_.refill()) {
          if (inside_) input_.broken("zstd", "is cut off");
          break;
        }
        from_ = {input_.data(), input_.size(), 0};
      }
      const size_t before = to.pos;
      const size_t status = ::ZSTD_decompressStream(zstd_, &to, &from_);
      if (::ZSTD_isError(status)) input_.broken("zstd", ::ZSTD_getErrorName(status));
      inside_ = status != 0;
      flushing_ = to.pos == to.size && inside_;
      if (from_.pos == from_.size && to.pos == before) flushing_ = false;
    }
    return to.pos;
  }
  int64_t bytes_in() const override { return input_.bytes_in(); }

 private:
  CompressedInput input_;
  ZSTD_DCtx* zstd_;
  ZSTD_inBuffer from_{nullptr, 0, 0};
  bool inside_ = false, flushing_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_stream(const Path& path) {
  if (path.extension() == ".gz") return std::make_unique<GzipStream>(path);
  if (path.extension() == ".zst") return std::make_unique<ZstdStream>(path);
  const std::string_view kind = binary_kind_of(path);
  PHX_CHECK(kind.empty(), path.native(), " is ", kind, ", not text",
            kind == "gzip data"   ? "\n  hint: such a file is read if its name ends in .gz"
            : kind == "zstd data" ? "\n  hint: such a file is read if its name ends in .zst"
                                  : "");
  return std::make_unique<PlainStream>(path);
}

TextKind kind_of_text(const Path& path) {
  const bool compressed = path.extension() == ".gz" || path.extension() == ".zst";
  const Path suffix = (compressed ? path.stem() : path).extension();
  for (const char* other : {".parquet", ".arrow", ".bz2", ".xz", ".zip", ".tar", ".bin", ".idx"})
    PHX_CHECK(suffix != other && path.extension() != other, path.native(),
              ": preprocess reads JSON lines and text, plain, .gz or .zst, but no ", other,
              " files");
  return suffix == ".txt" ? TextKind::plain : TextKind::json_lines;
}

BlockReader::BlockReader(std::vector<TextInput> files, size_t block_bytes)
    : files_(std::move(files)), block_bytes_(block_bytes) {
  bool pipes = false;
  for (const TextInput& file : files_) {
    if (file.path == kStandardInput) {
      pipes = true;
      continue;
    }
    struct stat info {};
    if (::stat(file.path.c_str(), &info) != 0) throw_file_error("read", file.path, errno);
    if (S_ISREG(info.st_mode))
      bytes_total_ += int64_t(info.st_size);
    else
      pipes = true;
  }
  if (pipes) bytes_total_ = 0;
}

int64_t BlockReader::bytes_in() const {
  return bytes_before_ + (stream_ ? stream_->bytes_in() : 0);
}

bool BlockReader::next(LineBlock& block) {
  while (file_ < files_.size()) {
    if (!stream_) {
      stream_ = open_stream(files_[file_].path);
      line_ = 1;
    }
    if (fill(block)) return true;
    bytes_before_ += stream_->bytes_in();
    stream_.reset();
    ++file_;
  }
  return false;
}

// Reads on until there is a line's end, or the file's, which is where a whole document ends. False
// if there is nothing more.
bool BlockReader::fill(LineBlock& block) {
  const bool whole = files_[file_].kind == TextKind::whole;
  size_t size = rest_.size();
  block.memory.resize(std::max(block_bytes_, 2 * size) + LineBlock::kPadding);
  std::copy(rest_.begin(), rest_.end(), block.memory.begin());
  rest_.clear();
  size_t end = 0;  // behind the last whole line
  while (true) {
    const size_t room = block.memory.size() - LineBlock::kPadding - size;
    const size_t got = stream_->read(std::span(block.memory).subspan(size, room));
    bytes_text_ += int64_t(got);
    const void* feed = ::memrchr(block.memory.data() + size, '\n', got);
    if (feed != nullptr) end = size_t(static_cast<const char*>(feed) - block.memory.data()) + 1;
    size += got;
    if (got < room) {  // the end of the file: what is left is its last line
      if (size == 0) return false;
      end = size;
      break;
    }
    if (end > 0 && !whole) break;
    block.memory.resize(2 * block.memory.size());  // a line or document longer than the block
  }
  rest_.assign(block.memory.begin() + int64_t(end), block.memory.begin() + int64_t(size));
  std::fill_n(block.memory.begin() + int64_t(end), LineBlock::kPadding, 0);
  block.size = end;
  block.file = file_;
  block.first_line = line_;
  block.first_index = index_;
  const std::string_view text = block.text();
  int64_t lines = whole ? 1 : std::count(text.begin(), text.end(), '\n');
  if (!whole && text.back() != '\n') ++lines;
  line_ += lines;
  index_ += lines;
  return true;
}

std::vector<Path> expand_patterns(std::span<const std::string> patterns) {
  std::vector<Path> files;
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of("*?[") == std::string::npos) {
      files.emplace_back(pattern);
      continue;
    }
    glob_t found{};
    const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
      files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    PHX_CHECK(status == 0, "no file fits ", pattern, "\n  hint: check the spelling and the folder");
  }
  return files;
}

namespace {

// Those in a folder and below, sorted.
std::vector<Path> files_below(const Path& folder) {
  namespace fs = std::filesystem;
  std::vector<Path> files;
  std::error_code code;
  auto entry = fs::recursive_directory_iterator(folder, code);
  if (code) throw_file_error("read", folder, code.value());
  while (entry != fs::recursive_directory_iterator()) {
    const Path path = entry->path();
    const bool hidden = path.filename().native().starts_with('.');
    if (hidden && entry->is_directory(code)) entry.disable_recursion_pending();
    if (!hidden && entry->is_regular_file(code)) files.push_back(path);
    entry.increment(code);  // after an error it is at the end: a folder that cannot be read is none
    if (code) throw_file_error("read what is in or behind", path, code.value());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TextKind kind_in_folder(const Path& path) {
  const bool compressed = path.extension() == ".gz" || path.extension() == ".zst";
  const Path suffix = (compressed ? path.stem() : path).extension();
  kind_of_text(path);  // refuses what is no text
  return suffix == ".jsonl" || suffix == ".json" ? TextKind::json_lines : TextKind::whole;
}

}  // namespace

std::vector<TextInput> find_inputs(std::span<const std::string> patterns) {
  std::vector<TextInput> inputs;
  for (const Path& path : expand_patterns(patterns)) {
    if (!std::filesystem::is_directory(path)) {
      inputs.emplace_back(path);
      continue;
    }
    const std::vector<Path> files = files_below(path);
    PHX_CHECK(!files.empty(), "folder ", path.native(), " has no files");
    for (const Path& file : files) inputs.emplace_back(file, kind_in_folder(file));
  }
  return inputs;
}

}  // namespace phx
