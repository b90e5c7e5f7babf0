// Megatron's older checkpoints (torch): mp_rank_TT[_PPP]/model_optim_rng.pt, a file for every
// tensor- and pipeline-parallel rank, and beside it distrib_optim.pt with the distributed
// optimizer. The ranks' parts are joined under our names. Adam's state comes as
// optimizer.exp_avg.*, optimizer.exp_avg_sq.* and, beside 16-bit weights, optimizer.master.*; all
// of it or, where it cannot be read, nothing.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/torch_optimizer.h"

namespace phx {

class TorchFolder : public TensorSource {
 public:
  // `path`: the iter_* folder itself.
  explicit TorchFolder(const Path& path, const TorchReadOptions& options = {});
  static bool is_one(const Path& path);  // has it a folder mp_rank_*?

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

  const std::string& common_json() const { return common_; }  // as of TorchDistCheckpoint
  // Why there is no optimizer state; empty: it is there.
  const std::string& why_no_optimizer() const { return why_no_optimizer_; }
  bool optimizer_saved() const;  // whether there is some, read or not

 private:
  using Tensors = std::map<std::string, TorchTensor>;
  struct RankFile {
    explicit RankFile(const Path& path);
    void add_model(const PickleValue& model);

    MappedFile file;
    TorchArchive archive;
    std::vector<TorchChunk> chunks;  // of the model: model, or model0, model1, ..
    // distrib_optim.pt; empty: there is none. It is opened where its state is wanted.
    Path distributed_path;
    std::optional<MappedFile> distributed_file;
    std::optional<TorchArchive> distributed;
    std::vector<TorchStates> states;  // of every chunk; empty: not read
  };
  // Elements from `from` on of a rank's tensor are the box `box` of the whole.
  struct Part {
    const TorchTensor* tensor;
    Dims from;
    Box box;
  };

  void open_ranks();
  void check_arguments();
  void open_optimizer();
  void add_chunk(size_t stage, size_t chunk, int64_t first_layer, const TorchReadOptions& options);
  void join(const std::string& name, const std::vector<const Tensors*>& ranks,
            const std::string& local_name, const TorchReadOptions& options);

  Path path_;
  std::vector<std::vector<std::unique_ptr<RankFile>>> ranks_;  // [pipeline stage][tensor rank]
  bool tied_ = false;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, std::vector<Part>> parts_;
  std::string common_, why_no_optimizer_;
};

}  // namespace phx
