#include "phalanx/data/batch_order.h"

#include "phalanx/base/error.h"
#include "phalanx/data/numpy_random.h"

namespace phx {

BatchOrder::BatchOrder(const Options& options, const BatchCut& cut,
                       std::optional<int64_t> num_samples)
    : options_(options), cut_(cut) {
  if (options.type == DataloaderType::single) return;
  PHX_CHECK(num_samples.has_value(),
            "--dataloader-type cyclic goes round a dataset of known length: use --data-path");
  num_samples_ = *num_samples;
  const int64_t together = cut.micro_batch * cut.data_ranks;
  active_ = num_samples_ - num_samples_ % together;
  PHX_CHECK(active_ > 0, "--dataloader-type cyclic: the dataset has ", num_samples_,
            " samples, fewer than --micro-batch-size ", cut.micro_batch, " x data parallel ",
            cut.data_ranks);
}

int64_t BatchOrder::at(int64_t consumed, int64_t j) const {
  if (options_.type == DataloaderType::cyclic) return cyclic(consumed, j);
  return consumed + cut_.data_rank * cut_.micro_batch + j;
}

int64_t BatchOrder::cyclic(int64_t consumed, int64_t j) const {
  const int64_t together = cut_.micro_batch * cut_.data_ranks;
  // A checkpoint's number of samples, with the cut of a run that goes on in another way.
  PHX_CHECK(consumed % together == 0, "--dataloader-type cyclic: ", consumed,
            " consumed samples are no multiple of --micro-batch-size ", cut_.micro_batch,
            " x data parallel ", cut_.data_ranks, " = ", together,
            ", in which shuffled epochs are dealt out\n  hint: go on with the --micro-batch-size "
            "and the number of ranks of the run that was saved, or with others whose product "
            "divides ",
            consumed);
  const int64_t epoch = consumed / active_, current = consumed % active_;
  const auto order = permutation(epoch);
  if (!options_.data_sharding)
    return (*order)[size_t(current + cut_.data_rank + j * cut_.data_ranks)];
  const int64_t bucket = num_samples_ / together * cut_.micro_batch;
  return cut_.data_rank * bucket + (*order)[size_t(current / cut_.data_ranks + j)];
}

std::shared_ptr<const std::vector<int64_t>> BatchOrder::permutation(int64_t epoch) const {
  const std::lock_guard lock(permutations_->mutex);
  auto& by_epoch = permutations_->by_epoch;
  auto& found = by_epoch[epoch];
  if (!found) {
    const int64_t together = cut_.micro_batch * cut_.data_ranks;
    const int64_t size = options_.data_sharding
                             ? num_samples_ / together * cut_.micro_batch
                             : num_samples_ / cut_.micro_batch * cut_.micro_batch;
    found = std::make_shared<const std::vector<int64_t>>(torch_randperm(size, uint64_t(epoch)));
  }
  const auto result = found;
  while (by_epoch.size() > 2)  // a batch may reach over the end of an epoch
    by_epoch.erase(by_epoch.begin()->first == epoch ? std::prev(by_epoch.end()) : by_epoch.begin());
  return result;
}

}  // namespace phx
