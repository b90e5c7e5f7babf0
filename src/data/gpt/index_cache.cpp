#include "data/gpt/index_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/math.h"
#include "core/philox.h"

namespace phx {
namespace {

constexpr uint64_t kMagic = 0x3158444958485000u;  // changes with the layout of the file
constexpr int64_t kAlign = 64;

struct Header {
  uint64_t magic = kMagic;
  int64_t file_bytes = 0;
  int64_t key_bytes = 0;
  int64_t num_documents = 0;
  int64_t num_samples = 0;
  int64_t start_size = 4;    // bytes a number of the starts
  int64_t shuffle_size = 4;  // bytes a number of the shuffle

  int64_t documents_at() const { return round_up(int64_t{sizeof(Header)} + key_bytes, kAlign); }
  int64_t starts_at() const { return round_up(documents_at() + 4 * num_documents, kAlign); }
  int64_t shuffle_at() const {
    return round_up(starts_at() + 2 * (num_samples + 1) * start_size, kAlign);
  }
  int64_t end() const { return shuffle_at() + num_samples * shuffle_size; }
};

uint64_t hash_bytes(uint64_t hash, std::span<const std::byte> bytes) {
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    hash = mix64(hash ^ word) + 0x9e3779b97f4a7c15u;
  }
  uint64_t last = bytes.size() - at;  // so that zeros at the end count
  for (; at < bytes.size(); ++at) last = last << 8 | uint64_t(bytes[at]);
  return mix64(hash ^ last);
}

// All of a small file; of a large one both ends and pages between.
uint64_t content_hash(const MappedFile& file) {
  constexpr size_t kEnds = 1 << 16, kPage = 4096, kPages = 64;
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() <= 2 * kEnds + kPages * kPage) return hash_bytes(1, bytes);
  uint64_t hash = hash_bytes(hash_bytes(1, bytes.first(kEnds)), bytes.last(kEnds));
  const size_t step = (bytes.size() - 2 * kEnds) / kPages;
  for (size_t i = 0; i < kPages; ++i)
    hash = hash_bytes(hash, bytes.subspan(kEnds + i * step, kPage));
  return hash;
}

std::string state_of(const MappedFile& file) {
  struct stat info {};
  if (::stat(file.path().c_str(), &info) != 0) throw_file_error("read", file.path(), errno);
  return fmt::format("{} bytes, changed at {}.{:09}, content {:016x}", file.size(),
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec, content_hash(file));
}

template <class T>
std::span<const T> array_at(const MappedFile& file, int64_t at, int64_t count) {
  return {reinterpret_cast<const T*>(file.data() + at), size_t(count)};
}

bool sane(const Header& header, int64_t file_bytes, const std::string& key) {
  constexpr int64_t kMost = int64_t{1} << 56;
  return header.magic == kMagic && header.file_bytes == file_bytes &&
         header.key_bytes == int64_t(key.size()) && header.num_documents > 0 &&
         header.num_documents < kMost && header.num_samples > 0 && header.num_samples < kMost &&
         (header.start_size == 4 || header.start_size == 8) &&
         (header.shuffle_size == 4 || header.shuffle_size == 8) && header.end() == file_bytes;
}

void write_at(AtomicFile& file, int64_t at, std::span<const std::byte> bytes) {
  const std::vector<std::byte> gap(size_t(at - file.size()));
  file.write(gap);
  file.write(bytes);
}

}  // namespace

std::string index_key(const IndexedDataset& dataset, const GptIndexRequest& request) {
  return fmt::format(
      "GPT index 1\nidx: {}\nbin: {}\ndocuments: {} from {} on\nsequence length: {}\n"
      "samples: {}\nseed: {}\n",
      state_of(dataset.idx()), state_of(dataset.bin()), request.documents.count,
      request.documents.first, request.seq_length,
      request.num_samples ? std::to_string(*request.num_samples) : "of one epoch", request.seed);
}

Path IndexCache::file_of(const std::string& key) const {
  const uint64_t low = hash_bytes(1, as_bytes(key)), high = hash_bytes(2, as_bytes(key));
  return folder_ / fmt::format("{:016x}{:016x}.gpt_index", high, low);
}

std::optional<GptIndex> IndexCache::open(const std::string& key) const {
  const Path path = file_of(key);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
  const auto file = std::make_shared<MappedFile>(path);
  Header header;
  const auto useless = [&] {
    log_warning(path.native() + " is no index that could be used; it is made anew");
    return std::nullopt;
  };
  if (file->size() < int64_t{sizeof header}) return useless();
  std::memcpy(&header, file->data(), sizeof header);
  if (!sane(header, file->size(), key)) return useless();
  if (std::memcmp(file->data() + sizeof header, key.data(), key.size()) != 0) return useless();
  const int64_t starts = 2 * (header.num_samples + 1);
  GptIndex::Arrays arrays;
  arrays.documents = array_at<int32_t>(*file, header.documents_at(), header.num_documents);
  if (header.start_size == 4)
    arrays.starts = array_at<int32_t>(*file, header.starts_at(), starts);
  else
    arrays.wide_starts = array_at<int64_t>(*file, header.starts_at(), starts);
  if (header.shuffle_size == 4)
    arrays.shuffle = array_at<uint32_t>(*file, header.shuffle_at(), header.num_samples);
  else
    arrays.wide_shuffle = array_at<int64_t>(*file, header.shuffle_at(), header.num_samples);
  return GptIndex(arrays, file);
}

void IndexCache::save(const std::string& key, const GptIndex& index) const {
  const GptIndex::Arrays arrays = index.arrays();
  Header header;
  header.key_bytes = int64_t(key.size());
  header.num_documents = index.num_documents();
  header.num_samples = index.num_samples();
  header.start_size = arrays.wide_starts.empty() ? 4 : 8;
  header.shuffle_size = arrays.wide_shuffle.empty() ? 4 : 8;
  header.file_bytes = header.end();
  make_folder(folder_);
  AtomicFile file(file_of(key));
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(key);
  write_at(file, header.documents_at(), std::as_bytes(arrays.documents));
  write_at(file, header.starts_at(), std::as_bytes(arrays.starts));
  file.write(std::as_bytes(arrays.wide_starts));
  write_at(file, header.shuffle_at(), std::as_bytes(arrays.shuffle));
  file.write(std::as_bytes(arrays.wide_shuffle));
  file.commit();
}

void IndexCache::keep(const std::string& key, const GptIndex& index) const {
  try {
    save(key, index);
  } catch (const Error& error) {
    log_warning(str_cat("the sample index is not kept: ", error.what()));
  }
}

IndexCache::Lock::Lock(const IndexCache& cache, const std::string& key)
    : path_(cache.file_of(key)) {
  path_ += ".lock";
  std::error_code code;
  std::filesystem::create_directories(cache.folder_, code);
  file_ = FileHandle(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) {
    log_warning(str_cat("the sample index is not kept: cannot write to ", cache.folder_.native(),
                        ": ", std::generic_category().message(errno),
                        "\n  hint: --data-cache-path names another folder"));
    return;
  }
  while (::flock(file_.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
}

IndexCache::Lock::~Lock() {
  // Whoever waits for the lock finds the index when it comes; whoever makes a new lock, too.
  if (file_.is_open()) ::unlink(path_.c_str());
}

}  // namespace phx
