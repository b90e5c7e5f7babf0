#include "phalanx/data/gpt/index_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/base/mapped_faults.h"
#include "phalanx/base/math.h"
#include "phalanx/core/philox.h"

namespace phx {
namespace {

constexpr uint64_t kMagic = 0x3258444958485000u;  // changes with the layout of the file
constexpr int64_t kAlign = 64;
constexpr size_t kMostArrays = 5;

// The file is this, the key, and the arrays.
struct Header {
  uint64_t magic = kMagic;
  int64_t file_bytes = 0;
  int64_t key_bytes = 0;
  std::array<int64_t, kMostArrays> array_bytes = {};  // of each array; 0: it is not there

  // f(i, offset) for every array that is there; where the file ends.
  template <class F>
  int64_t each_array(F&& f) const {
    int64_t at = int64_t{sizeof(Header)} + key_bytes;
    for (size_t i = 0; i < kMostArrays; ++i) {
      if (array_bytes[i] == 0) continue;
      at = round_up(at, kAlign);
      f(i, at);
      at += array_bytes[i];
    }
    return at;
  }
  int64_t end() const {
    return each_array([](size_t, int64_t) {});
  }
};

using Arrays = std::array<std::span<const std::byte>, kMostArrays>;

template <class T>
std::span<const T> numbers(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

Arrays arrays_of(const GptIndex& index) {
  const GptIndex::Arrays arrays = index.arrays();
  return {std::as_bytes(arrays.documents), std::as_bytes(arrays.starts),
          std::as_bytes(arrays.wide_starts), std::as_bytes(arrays.shuffle),
          std::as_bytes(arrays.wide_shuffle)};
}

Arrays arrays_of(const BlendIndex& index) {
  return {std::as_bytes(index.dataset), std::as_bytes(index.sample), std::as_bytes(index.taken)};
}

// None if these are no arrays of such an index.
template <class Index>
std::optional<Index> index_over(const Arrays& arrays, std::shared_ptr<const void> memory);

template <>
std::optional<GptIndex> index_over(const Arrays& arrays, std::shared_ptr<const void> memory) {
  const GptIndex::Arrays parts{.documents = numbers<int32_t>(arrays[0]),
                               .starts = numbers<int32_t>(arrays[1]),
                               .wide_starts = numbers<int64_t>(arrays[2]),
                               .shuffle = numbers<uint32_t>(arrays[3]),
                               .wide_shuffle = numbers<int64_t>(arrays[4])};
  const bool one_of_each = parts.starts.empty() != parts.wide_starts.empty() &&
                           parts.shuffle.empty() != parts.wide_shuffle.empty();
  const size_t starts = parts.starts.size() + parts.wide_starts.size();
  const size_t samples = parts.shuffle.size() + parts.wide_shuffle.size();
  if (parts.documents.empty() || !one_of_each || starts != 2 * (samples + 1)) return std::nullopt;
  return GptIndex(parts, std::move(memory));
}

template <>
std::optional<BlendIndex> index_over(const Arrays& arrays, std::shared_ptr<const void> memory) {
  const BlendIndex index{numbers<int16_t>(arrays[0]), numbers<int64_t>(arrays[1]),
                         numbers<int64_t>(arrays[2]), std::move(memory)};
  if (index.dataset.empty() || index.dataset.size() != index.sample.size()) return std::nullopt;
  return index;
}

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

bool sane(const Header& header, int64_t file_bytes, const std::string& key) {
  constexpr int64_t kMost = int64_t{1} << 56;
  return header.magic == kMagic && header.file_bytes == file_bytes &&
         header.key_bytes == int64_t(key.size()) &&
         std::ranges::all_of(header.array_bytes,
                             [](int64_t bytes) { return bytes >= 0 && bytes < kMost; }) &&
         header.end() == file_bytes;
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

std::string blend_key(std::span<const double> weights, int64_t num_samples) {
  std::string key = fmt::format("blend index 1\nsamples: {}\n", num_samples);
  for (const double weight : weights) key += fmt::format("{:a}\n", weight);
  return key;
}

std::string exhaustive_blend_key(std::span<const int64_t> sizes) {
  std::string key = "exhaustive blend index 1\n";
  for (const int64_t size : sizes) key += fmt::format("{}\n", size);
  return key;
}

Path IndexCache::file_of(const std::string& key) const {
  const uint64_t low = hash_bytes(1, as_bytes(key)), high = hash_bytes(2, as_bytes(key));
  return folder_ / fmt::format("{:016x}{:016x}.index", high, low);
}

template <class Index>
std::optional<Index> IndexCache::open(const std::string& key) const {
  const Path path = file_of(key);
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return std::nullopt;
  const auto file = std::make_shared<MappedFile>(path);
  std::optional<Index> index;
  Header header;
  if (file->size() >= int64_t{sizeof header}) {
    std::memcpy(&header, file->data(), sizeof header);
    if (sane(header, file->size(), key) &&
        std::memcmp(file->data() + sizeof header, key.data(), key.size()) == 0) {
      Arrays arrays;
      header.each_array([&](size_t i, int64_t at) {
        arrays[i] = file->bytes().subspan(size_t(at), size_t(header.array_bytes[i]));
      });
      index = index_over<Index>(arrays, file);
    }
  }
  if (!index) log_warning(path.native() + " is no index that could be used; it is made anew");
  return index;
}

template <class Index>
void IndexCache::save(const std::string& key, const Index& index) const {
  const Arrays arrays = arrays_of(index);
  Header header;
  header.key_bytes = int64_t(key.size());
  for (size_t i = 0; i < kMostArrays; ++i) header.array_bytes[i] = int64_t(arrays[i].size());
  header.file_bytes = header.end();
  make_folder(folder_);
  AtomicFile file(file_of(key));
  check_mapped_files();  // an index made of pages that were lost must not be kept
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(key);
  header.each_array([&](size_t i, int64_t at) { write_at(file, at, arrays[i]); });
  file.commit();
}

template <class Index>
void IndexCache::keep(const std::string& key, const Index& index) const {
  try {
    save(key, index);
  } catch (const Error& error) {
    log_warning(str_cat("the sample index is not kept: ", error.what()));
  }
}

template std::optional<GptIndex> IndexCache::open(const std::string&) const;
template std::optional<BlendIndex> IndexCache::open(const std::string&) const;
template void IndexCache::save(const std::string&, const GptIndex&) const;
template void IndexCache::save(const std::string&, const BlendIndex&) const;
template void IndexCache::keep(const std::string&, const GptIndex&) const;
template void IndexCache::keep(const std::string&, const BlendIndex&) const;

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
