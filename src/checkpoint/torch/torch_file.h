// Tensors of files that torch.save wrote: one .pt or .bin file, or a Hugging Face folder of
// pytorch_model*.bin. The files are mapped; nothing is read but what is asked for.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {

class TorchFile : public TensorSource {
 public:
  // The tensors of the dict at `root` ("model", "model.state_dict"; empty: the whole file), under
  // their keys, those of dicts inside dicts joined by dots.
  explicit TorchFile(const Path& path, const std::string& root = "");

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

  const TorchTensor& at(const std::string& name) const;
  const PickleValue& object() const { return archive_.root(); }  // the whole file

 private:
  MappedFile file_;
  TorchArchive archive_;
  std::map<std::string, TorchTensor> tensors_;
  std::map<std::string, TensorInfo> infos_;
};

// pytorch_model.bin, or the files that pytorch_model.bin.index.json lists. Names are the files'.
class TorchBinFolder : public TensorSource {
 public:
  explicit TorchBinFolder(const Path& folder);
  static bool is_one(const Path& folder);

  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

 private:
  Path folder_;
  std::vector<std::unique_ptr<TorchFile>> files_;
  std::map<std::string, const TorchFile*> holders_;
  std::map<std::string, TensorInfo> infos_;
};

}  // namespace phx
