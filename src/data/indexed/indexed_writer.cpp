#include "phalanx/data/indexed/indexed_writer.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <limits>

#include "phalanx/base/error.h"
#include "phalanx/data/indexed/indexed_dataset.h"

namespace phx {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Path folder_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : Path("."); }

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "host";
}

// The host and the process id keep two that write the same pair apart.
std::string beside_until_process(const Path& file, const char* what) {
  return str_cat(file.native(), ".", what, ".", host_name(), ".");
}
Path beside(const Path& file, const char* what) {
  return Path(str_cat(beside_until_process(file, what), ::getpid()));
}

// Whether `path` is `start`PID, or that and more behind a point, of a process that is gone.
bool left_behind(const Path& path, const std::string& start) {
  std::string_view rest = path.native();
  if (!rest.starts_with(start)) return false;
  rest.remove_prefix(start.size());
  int process = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), process);
  const bool whole = end == rest.data() + rest.size() || *end == '.';
  if (error != std::errc() || !whole || process <= 0) return false;
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

// What processes of this host that were killed have left of the pair: names that nobody reads.
void remove_leftovers(const Path& prefix, Disk& disk) {
  std::vector<Path> found;
  std::error_code code;
  for (auto at = std::filesystem::directory_iterator(folder_of(prefix), code);
       !code && at != std::filesystem::directory_iterator(); at.increment(code)) {
    const Path path = prefix.parent_path() / at->path().filename();
    for (const Path& file : {bin_file(prefix), idx_file(prefix)})
      for (const char* what : {"new", "old"})
        if (left_behind(path, beside_until_process(file, what))) found.push_back(path);
  }
  for (const Path& path : found) disk.remove(path.c_str());
}

FileHandle nameless_file(const Path& prefix) {
  const Path folder = folder_of(prefix);
  FileHandle file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.is_open()) return file;
  // Not every file system has nameless files: one that is unlinked at once is as good.
  std::string name = prefix.native() + ".spill.XXXXXX";
  file = FileHandle(::mkstemp(name.data()));
  if (!file.is_open()) throw_file_error("create", prefix, errno);
  ::unlink(name.c_str());
  return file;
}

template <class T>
void narrow_into(std::span<const int32_t> tokens, TokenCode code, std::vector<std::byte>& out) {
  const size_t before = out.size();
  out.resize(before + tokens.size() * sizeof(T));
  std::byte* to = out.data() + before;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const T value = static_cast<T>(tokens[i]);
    PHX_CHECK(int64_t{value} == tokens[i], "token ", tokens[i], " does not fit ",
              name_of_code(code), ", the type of the tokens of this file");
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

SpillFile::SpillFile(const Path& beside) : name_(beside), file_(nameless_file(beside)) {
  buffer_.reserve(kBuffer);
}

void SpillFile::write(std::span<const std::byte> bytes) {
  if (buffer_.size() + bytes.size() > kBuffer) flush();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void SpillFile::flush() {
  std::span<const std::byte> left = buffer_;
  while (!left.empty()) {
    const ssize_t n = ::write(file_.get(), left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("write", name_, errno);
    left = left.subspan(size_t(n));
  }
  size_ += int64_t(buffer_.size());
  buffer_.clear();
}

int64_t SpillFile::read_at(int64_t at, std::span<std::byte> piece) const {
  // Whole pieces but for the last: callers take pieces apart into numbers.
  const size_t wanted = std::min(piece.size(), size_t(size_ - at));
  for (size_t done = 0; done < wanted;) {
    const ssize_t n = ::pread(file_.get(), piece.data() + done, wanted - done, at + int64_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("read", name_, errno);
    PHX_CHECK(n > 0, "cannot read back the lengths for ", name_.native(),
              ": somebody cut the file while it was written");
    done += size_t(n);
  }
  return int64_t(wanted);
}

void append_tokens(std::span<const int32_t> tokens, TokenCode code, std::vector<std::byte>& out) {
  switch (code) {
    case TokenCode::u16:
      return narrow_into<uint16_t>(tokens, code, out);
    case TokenCode::i32:
      return narrow_into<int32_t>(tokens, code, out);
    case TokenCode::u8:
      return narrow_into<uint8_t>(tokens, code, out);
    case TokenCode::i8:
      return narrow_into<int8_t>(tokens, code, out);
    case TokenCode::i16:
      return narrow_into<int16_t>(tokens, code, out);
    case TokenCode::i64:
      return narrow_into<int64_t>(tokens, code, out);
    case TokenCode::f32:
    case TokenCode::f64:
      break;
  }
  throw_error(str_cat("tokens cannot be written as ", name_of_code(code), ": they are integers"));
}

IndexedWriter::IndexedWriter(const Path& prefix, TokenCode code, Disk& disk)
    : prefix_(prefix),
      code_(code),
      disk_(disk),
      staged_bin_{beside(bin_file(prefix), "new"), disk},
      staged_idx_{beside(idx_file(prefix), "new"), disk},
      bin_(staged_bin_.path, disk),
      idx_(staged_idx_.path, disk),
      lengths_(prefix),
      documents_(prefix) {
  for (const Path& file : {bin_file(prefix), idx_file(prefix)})
    if (std::error_code code; std::filesystem::is_directory(file, code))
      throw_file_error("write", file, EISDIR);
}

void IndexedWriter::add_sequence(std::span<const int32_t> tokens) {
  PHX_CHECK(tokens.size() <= size_t(std::numeric_limits<int32_t>::max()), prefix_.native(),
            ": a sequence of ", tokens.size(), " tokens; the format counts them in 32 bits");
  narrow_.clear();
  append_tokens(tokens, code_, narrow_);
  bin_.write(narrow_);
  const auto length = int32_t(tokens.size());
  lengths_.write(bytes_of(length));
  ++num_sequences_;
}

void IndexedWriter::end_document() {
  documents_.write(bytes_of(num_sequences_));
  ++num_documents_;
}

void IndexedWriter::add_lengths(std::span<const int32_t> lengths) {
  for (const int32_t length : lengths) {
    if (length > 0) {
      lengths_.write(bytes_of(length));
      ++num_sequences_;
    }
    end_document();
  }
}

void IndexedWriter::add_dataset(const IndexedDataset& dataset) {
  PHX_CHECK(dataset.code() == code_, idx_file(dataset.prefix()).native(), " holds ",
            name_of_code(dataset.code()), " tokens, but the pairs before it ", name_of_code(code_),
            "\n  hint: preprocess both with one tokenizer");
  dataset.check_all();
  const int64_t before = num_sequences_;
  bin_.write(dataset.bin().bytes());
  for (int64_t i = 0; i < dataset.num_sequences(); ++i) {
    const int32_t length = dataset.length(i);
    lengths_.write(bytes_of(length));
  }
  for (int64_t i = 1; i <= dataset.num_documents(); ++i) {
    const int64_t end = before + dataset.document_start(i);
    documents_.write(bytes_of(end));
  }
  num_sequences_ += dataset.num_sequences();
  num_documents_ += dataset.num_documents();
}

void IndexedWriter::commit() {
  write_index();
  // What takes space or time is done before the old pair is touched.
  bin_.commit();
  idx_.commit();
  publish();
  remove_leftovers(prefix_, disk_);
}

void IndexedWriter::write_index() {
  constexpr char kMagic[] = "MMIDIDX\0";  // the literal's own end is the second NUL
  static_assert(sizeof kMagic == 9);
  const uint64_t version = 1, sequences = uint64_t(num_sequences_),
                 entries = uint64_t(num_documents_) + 1;
  const auto code = uint8_t(code_);
  idx_.write(std::as_bytes(std::span(kMagic)));
  idx_.write(bytes_of(version));
  idx_.write(bytes_of(code));
  idx_.write(bytes_of(sequences));
  idx_.write(bytes_of(entries));
  lengths_.read_back([&](std::span<const std::byte> piece) { idx_.write(piece); });

  int64_t pointer = 0;
  std::vector<int64_t> pointers;
  lengths_.read_back([&](std::span<const std::byte> piece) {
    pointers.clear();
    for (size_t at = 0; at < piece.size(); at += 4) {
      int32_t length;
      std::memcpy(&length, piece.data() + at, 4);
      pointers.push_back(pointer);
      pointer += int64_t{length} * size_of_code(code_);
    }
    idx_.write(std::as_bytes(std::span<const int64_t>(pointers)));
  });
  PHX_ASSERT(pointer == bin_.size(), "pointers end at ", pointer, " of ", bin_.size(), " bytes");
  const int64_t first = 0;
  idx_.write(bytes_of(first));
  documents_.read_back([&](std::span<const std::byte> piece) { idx_.write(piece); });
}

// Names change one at a time, and each is on disk before the next one changes: the old index
// leaves, the tokens are replaced, the new index comes.
void IndexedWriter::publish() const {
  const Path bin = bin_file(prefix_), idx = idx_file(prefix_), folder = folder_of(prefix_);
  const Path old = beside(idx, "old");
  const auto rename = [&](const Path& from, const Path& to) {
    if (disk_.rename(from.c_str(), to.c_str()) != 0) throw_file_error("replace", to, errno);
  };
  const bool replaces = disk_.rename(idx.c_str(), old.c_str()) == 0;
  if (!replaces && errno != ENOENT) throw_file_error("replace", idx, errno);
  bool tokens_replaced = false, index_replaced = false;
  try {
    if (replaces) sync_folder(folder, disk_);
    rename(staged_bin_.path, bin);
    tokens_replaced = true;
    sync_folder(folder, disk_);
    rename(staged_idx_.path, idx);
    index_replaced = true;
    sync_folder(folder, disk_);
  } catch (...) {
    if (tokens_replaced) {
      if (!index_replaced) disk_.remove(bin.c_str());  // tokens without an index are nobody's
      disk_.remove(old.c_str());
    } else if (replaces) {
      disk_.rename(old.c_str(), idx.c_str());  // if that fails, too, it stays under its other name
    }
    throw;
  }
  if (replaces) disk_.remove(old.c_str());
}

void merge_datasets(std::span<const Path> inputs, const Path& output) {
  PHX_CHECK(!inputs.empty(), "there are no pairs to merge");
  for (const Path& input : inputs)
    PHX_CHECK(idx_file(input).lexically_normal() != idx_file(output).lexically_normal(),
              "the output ", output.native(), " is also one of the inputs");
  IndexedWriter writer(output, IndexedDataset(inputs[0]).code());
  for (const Path& input : inputs) writer.add_dataset(IndexedDataset(input));
  writer.commit();
}

}  // namespace phx
