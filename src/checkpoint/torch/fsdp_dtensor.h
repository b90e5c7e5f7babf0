// Checkpoints of Megatron-FSDP (--ckpt-format fsdp_dtensor): PyTorch's distributed checkpoint of a
// state dict, without Megatron's metadata.json. Layers are numbered, the halves of a gated fc1 are
// two tensors (.._w and .._v), and arguments and counters are one byte object each.
//
// Weights are saved as the fp32 that FSDP's optimizer updates, whatever type the model computes in:
// here they come out as weights of that type, and as optimizer.master.*, as in other forms.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/torch_dist_files.h"

namespace phx {

class FsdpCheckpoint : public TensorSource {
 public:
  // `path`: the iter_* folder itself.
  explicit FsdpCheckpoint(const Path& path, const TorchReadOptions& options = {});
  static bool is_one(const Path& path);  // has it a .metadata, and no metadata.json?

  const TensorInfos& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

  const std::string& common_json() const { return common_; }  // as TorchDistCheckpoint's
  bool optimizer_saved() const { return optimizer_saved_; }
  const std::string& why_no_optimizer() const { return why_no_optimizer_; }

 private:
  // Rows of a tensor of ours that one of the file holds, from `row` on.
  struct Rows {
    const TorchDistTensor* tensor;
    int64_t row;
  };

  void open_files(bool optimizer);
  void read_common();
  void add_tensors(const TorchReadOptions& options);
  void add(const std::string& key, const std::string& name);
  void add_masters(bool optimizer);
  void copy_rows(const std::string& name, const std::vector<Rows>& rows, const Box& box,
                 std::span<std::byte> out) const;

  Path path_;
  TorchDistMetadata metadata_;
  TorchDistFiles files_;
  TensorInfos infos_;
  std::map<std::string, std::vector<Rows>> parts_;
  std::string common_ = "{}";
  bool optimizer_saved_ = false;
  std::string why_no_optimizer_;
};

}  // namespace phx
