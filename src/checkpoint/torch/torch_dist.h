// Megatron's distributed checkpoints (torch_dist): .metadata says which chunk of which tensor lies
// in which __R_N.distcp, each chunk a small torch.save file. Both generations are read: replicated
// state in common.pt, or in a byte object.
//
// Tensors come under our names, layers one by one, whatever the file stacks. Optimizer state comes
// as optimizer.exp_avg.*, optimizer.exp_avg_sq.* and optimizer.master.*: with the model's shapes
// (fully reshardable, or without the distributed optimizer) or out of flat buckets (dp_reshardable,
// bucket_state.h). Where it cannot be read, all of it is left out, and notes() says why.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/bucket_state.h"
#include "phalanx/checkpoint/torch/torch_dist_files.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

namespace phx {

struct TorchReadOptions {
  // Rows of embedding and output layer that are shown: Megatron pads them. 0: all.
  int64_t vocab_size = 0;
  // Whether optimizer state is wanted. If not, nothing of it is opened, so that damaged state does
  // no harm.
  bool optimizer = true;
};

class TorchDistCheckpoint : public TensorSource {
 public:
  // `path`: the iter_* folder itself.
  explicit TorchDistCheckpoint(const Path& path, const TorchReadOptions& options = {});
  static bool is_one(const Path& path);  // has it a metadata.json and a .metadata?

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

  const std::vector<std::string>& notes() const { return notes_; }  // what was left out, and why
  bool optimizer_saved() const;  // whether there is optimizer state, read or not
  // The replicated state as JSON: arguments of the run under "args", counters. "{}" if there is
  // none.
  const std::string& common_json() const { return common_; }

 private:
  struct Part {
    const TorchDistTensor* tensor;
    Dims index;
  };

  void open_files(bool optimizer);
  void read_common();
  void read_beside(bool optimizer);
  std::string sharding_type() const;
  std::string object_json(const std::string& name, const TorchDistPlace& place);
  void add_tensors(const TorchReadOptions& options);
  void add_buckets();
  bool has_optimizer_tensors() const;
  bool masters_fit_weights() const;
  void copy_stacked(const std::string& name, const Part& part, const Box& box,
                    std::span<std::byte> out) const;
  void copy_flat(const FlatPart& part, const Box& wanted, std::span<std::byte> out) const;

  Path path_;
  TorchDistMetadata metadata_;
  TorchDistFiles files_;
  std::map<std::string, TensorInfo> infos_;
  std::map<std::string, Part> parts_;
  // State in flat buckets, and the chunks of a bucket by where they begin.
  std::map<std::string, std::vector<FlatPart>> flat_parts_;
  std::map<const TorchDistTensor*, std::map<int64_t, const TorchDistChunk*>> flat_chunks_;
  std::vector<std::string> notes_;
  std::string common_ = "{}";
};

}  // namespace phx
