// Megatron's older checkpoints (torch): mp_rank_TT[_PPP]/model_optim_rng.pt, a file for every
// tensor- and pipeline-parallel rank. The ranks' parts are joined under our names; model weights
// only.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "checkpoint/tensor_source.h"
#include "checkpoint/torch/torch_archive.h"
#include "checkpoint/torch/torch_dist.h"

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

 private:
  using Tensors = std::map<std::string, TorchTensor>;
  struct RankFile {
    explicit RankFile(const Path& path);
    MappedFile file;
    TorchArchive archive;
    std::vector<Tensors> chunks;  // of the model: model, or model0, model1, ..
  };
  // Elements from `from` on of a rank's tensor are the box `box` of the whole.
  struct Part {
    const TorchTensor* tensor;
    Dims from;
    Box box;
  };

  void open_ranks();
  void check_arguments();
  void add_chunk(int64_t stage, size_t chunk, int64_t first_layer, const TorchReadOptions& options);
  void join(const std::string& name, const std::vector<const Tensors*>& ranks,
            const std::string& local_name, const TorchReadOptions& options);

  Path path_;
  std::vector<std::vector<std::unique_ptr<RankFile>>> ranks_;  // [pipeline stage][tensor rank]
  bool tied_ = false;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, std::vector<Part>> parts_;
  std::string common_;
};

}  // namespace phx
