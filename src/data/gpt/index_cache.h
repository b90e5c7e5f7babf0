// Indices kept in files, so that a large dataset is opened in a moment. A file is found by a key
// that says everything that the index follows from: what was asked for, and the size, time of
// change and a hash of the token files. (Megatron's key knows nothing of the content: a dataset
// that is written anew under an old name meets the old indices there.)
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "phalanx/base/file.h"
#include "phalanx/data/gpt/blend.h"
#include "phalanx/data/gpt/gpt_index.h"
#include "phalanx/data/indexed/indexed_dataset.h"

namespace phx {

// The hash is over the head, the tail and some pages between, of both files: enough to tell other
// content of the same size and time apart, and read in a moment.
std::string index_key(const IndexedDataset& dataset, const GptIndexRequest& request);
// A blend's index follows from its weights and length, or from the sizes of its datasets, alone.
std::string blend_key(std::span<const double> weights, int64_t num_samples);
std::string exhaustive_blend_key(std::span<const int64_t> sizes);

// Index is GptIndex or BlendIndex.
class IndexCache {
 public:
  explicit IndexCache(const Path& folder) : folder_(folder) {}

  // The index of this key, or what `build` makes, which is then kept. While one process builds, the
  // others wait and then find it. A file is complete or not there at all. If the folder cannot be
  // written to, there is a warning and the index stays in memory.
  template <class Build, class Index = std::invoke_result_t<Build>>
  Index get(const std::string& key, Build&& build) const {
    if (std::optional<Index> found = open<Index>(key)) return *found;
    const Lock lock(*this, key);
    if (std::optional<Index> found = open<Index>(key)) return *found;
    const Index index = build();
    if (lock.held()) keep(key, index);
    return index;
  }

  Path file_of(const std::string& key) const;
  // None if there is no such file, or what is there is no index of this key; the latter is warned
  // of.
  template <class Index>
  std::optional<Index> open(const std::string& key) const;
  template <class Index>
  void save(const std::string& key, const Index& index) const;  // throws if it cannot

 private:
  // One process at a time builds an index.
  class Lock {
   public:
    Lock(const IndexCache& cache, const std::string& key);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();
    bool held() const { return file_.is_open(); }

   private:
    Path path_;
    FileHandle file_;
  };
  template <class Index>
  void keep(const std::string& key, const Index& index) const;  // warns if it cannot

  Path folder_;
};

extern template std::optional<GptIndex> IndexCache::open(const std::string&) const;
extern template std::optional<BlendIndex> IndexCache::open(const std::string&) const;
extern template void IndexCache::save(const std::string&, const GptIndex&) const;
extern template void IndexCache::save(const std::string&, const BlendIndex&) const;
extern template void IndexCache::keep(const std::string&, const GptIndex&) const;
extern template void IndexCache::keep(const std::string&, const BlendIndex&) const;

}  // namespace phx
