// Which samples a data-parallel rank reads after so many consumed samples: --dataloader-type. A
// function of that number alone, so that nothing else needs to be saved.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace phx {

enum class DataloaderType { single, cyclic };
constexpr auto option_names(DataloaderType) { return std::array{"single", "cyclic"}; }

// How batches are cut over ranks.
struct BatchCut {
  int64_t micro_batch = 1;  // M
  int64_t data_ranks = 1;   // D
  int64_t data_rank = 0;
};

class BatchOrder {
 public:
  struct Options {
    DataloaderType type = DataloaderType::single;
    bool data_sharding = true;  // cyclic: every rank shuffles a part of its own
  };
  // `num_samples`: of the dataset; cyclic needs it.
  BatchOrder(const Options& options, const BatchCut& cut, std::optional<int64_t> num_samples);

  // Sample j of the micro-batch that this rank takes after `consumed` samples, a multiple of M * D.
  //  single: ranks take micro-batches in turn, so a global batch has the same samples whatever D
  //  is. cyclic: epoch after epoch of a permutation that depends on D, as in Megatron.
  int64_t at(int64_t consumed, int64_t j) const;

 private:
  int64_t cyclic(int64_t consumed, int64_t j) const;
  // torch.randperm of this epoch.
  std::shared_ptr<const std::vector<int64_t>> permutation(int64_t epoch) const;

  Options options_;
  BatchCut cut_;
  int64_t num_samples_ = 0, active_ = 0;
  // Of the last epochs asked for; batches are read ahead by another thread.
  struct Permutations {
    std::mutex mutex;
    std::map<int64_t, std::shared_ptr<const std::vector<int64_t>>> by_epoch;
  };
  std::shared_ptr<Permutations> permutations_ = std::make_shared<Permutations>();
};

}  // namespace phx
