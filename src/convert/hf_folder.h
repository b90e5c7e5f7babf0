// The tensors of a Hugging Face folder, under their names there: one model.safetensors, or shards
// with model.safetensors.index.json; where there are none, pytorch_model*.bin. What else the folder
// holds is found by name beside them.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

// Has it a config.json? (Then it is no folder of native checkpoints.)
bool is_hf_folder(const Path& folder);

// An error names the file where it is no JSON object.
nlohmann::json read_json_object(const Path& path);

// Names of the tensors in safetensors, from one file however many shards there are. Empty: none.
std::vector<std::string> hf_tensor_names(const Path& folder);

class HfFolder : public TensorSource {
 public:
  explicit HfFolder(const Path& folder);

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override;
  std::string description() const override;

 private:
  struct Place {
    const SafetensorsFile* file = nullptr;
    const SafetensorsFile::Tensor* tensor = nullptr;
  };
  void open_shards(const Path& index);
  void add(const SafetensorsFile& file);

  Path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  TensorInfos tensors_;
  std::map<std::string, Place> places_;
};

// Safetensors if there are any, else PyTorch's files, which are read and never executed.
std::shared_ptr<const TensorSource> open_hf_tensors(const Path& folder);

// The files beside the weights that belong to the model: tokenizer, chat template, generation.
std::vector<Path> companion_files(const Path& folder);
// Where a folder of native checkpoints keeps those of the model it began from, and its config.json.
Path kept_companions(const Path& native);
// Puts them there.
void keep_companions(const Path& hf, const Path& native);

}  // namespace phx
