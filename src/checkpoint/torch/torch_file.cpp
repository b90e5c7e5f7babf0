#include "phalanx/checkpoint/torch/torch_file.h"

#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"

namespace phx {
namespace {

constexpr const char* kWhole = "pytorch_model.bin";
constexpr const char* kIndex = "pytorch_model.bin.index.json";

const PickleValue& object_at(const TorchArchive& archive, std::string_view root) {
  const PickleValue* value = &archive.root();
  while (!root.empty()) {
    const size_t dot = std::min(root.find('.'), root.size());
    const std::string_view key = root.substr(0, dot);
    value = value->find(key);
    PHX_CHECK(value != nullptr, archive.where(), " has no '", key, "'");
    root.remove_prefix(std::min(dot + 1, root.size()));
  }
  return *value;
}

std::set<std::string> files_of_index(const Path& index) {
  const auto json = try_parse_json(read_file(index));
  const bool valid =
      json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  PHX_CHECK(valid, index.native(), " should be JSON with a \"weight_map\"");
  std::set<std::string> files;
  for (const auto& [name, file] : json["weight_map"].items()) {
    PHX_CHECK(file.is_string(), index.native(), ": the file of '", printable(name),
              "' should be a text");
    const std::string text = file.get<std::string>();
    PHX_CHECK(!text.empty() && text.find('/') == text.npos && text != "..", index.native(), ": '",
              printable(text), "' is no file of this folder");
    files.insert(text);
  }
  return files;
}

}  // namespace

TorchFile::TorchFile(const Path& path, const std::string& root)
    : file_(path), archive_(file_.bytes(), path.native()) {
  tensors_ = archive_.tensors(object_at(archive_, root));
  for (const auto& [name, tensor] : tensors_) infos_[name] = tensor.info;
}

const TorchTensor& TorchFile::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  PHX_CHECK(found != tensors_.end(), archive_.where(), " has no tensor ", name, " among its ",
            tensors_.size());
  return found->second;
}

void TorchFile::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const TorchTensor& tensor = at(name);
  check_box(str_cat(archive_.where(), ": ", name), tensor.info, box, out.size());
  tensor.copy(box, {out.data(), dense_strides(box.size)});
}

std::string TorchFile::description() const {
  return str_cat(file_.path().filename().native(), " (torch.save, ", tensors_.size(), " tensors)");
}

bool TorchBinFolder::is_one(const Path& folder) {
  return std::filesystem::exists(folder / kIndex) || std::filesystem::exists(folder / kWhole);
}

TorchBinFolder::TorchBinFolder(const Path& folder) : folder_(folder) {
  std::set<std::string> files = {kWhole};
  if (std::filesystem::exists(folder / kIndex)) files = files_of_index(folder / kIndex);
  for (const std::string& name : files) {
    files_.push_back(std::make_unique<TorchFile>(folder / name));
    for (const auto& [tensor, info] : files_.back()->tensors()) {
      PHX_CHECK(holders_.emplace(tensor, files_.back().get()).second, (folder / name).native(),
                ": the tensor ", tensor, " is in another file too");
      infos_[tensor] = info;
    }
  }
}

void TorchBinFolder::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = holders_.find(name);
  PHX_CHECK(found != holders_.end(), folder_.native(), " has no tensor ", name);
  found->second->read(name, box, out);
}

std::string TorchBinFolder::description() const {
  return str_cat(folder_.filename().native(), " (", files_.size(), " .bin files, ", infos_.size(),
                 " tensors)");
}

}  // namespace phx
