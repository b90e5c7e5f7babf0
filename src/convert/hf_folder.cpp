#include "phalanx/convert/hf_folder.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/copy_box.h"
#include "phalanx/checkpoint/torch/torch_file.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The index says where a shard lies: only beside it, whoever wrote it.
void check_file_name(const std::string& name, const Path& index) {
  PHX_CHECK(!name.empty() && name.find('/') == std::string::npos && name != "." && name != "..",
            index.string(), ": \"", name, "\" is no name of a file in this folder");
}

// Pages of a mapped file count as this process's until they are given back; what is read here is
// read once.
void give_back(std::span<const std::byte> mapped) {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto begin = uintptr_t(mapped.data()), end = begin + mapped.size();
  const uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace

bool is_hf_folder(const Path& folder) {
  return std::filesystem::is_regular_file(folder / "config.json");
}

Json read_json_object(const Path& path) {
  const std::string text = read_file(path);
  Json json;
  try {
    json = parse_json(text);
  } catch (const Json::exception& error) {
    throw_error(str_cat(path.string(), " is no JSON: ", error.what()));
  }
  PHX_CHECK(json.is_object(), path.string(), " should hold a JSON object");
  return json;
}

std::vector<std::string> hf_tensor_names(const Path& folder) {
  std::vector<std::string> names;
  if (std::filesystem::exists(folder / kIndex)) {
    const Json json = read_json_object(folder / kIndex);
    if (json.contains("weight_map"))
      for (const auto& [name, file] : json["weight_map"].items()) names.push_back(name);
  } else if (std::filesystem::exists(folder / kOneFile)) {
    const SafetensorsFile file(folder / kOneFile);
    for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  }
  return names;
}

HfFolder::HfFolder(const Path& folder) : folder_(folder) {
  const Path index = folder / kIndex, file = folder / kOneFile;
  if (std::filesystem::exists(index)) {
    open_shards(index);
  } else {
    PHX_CHECK(std::filesystem::exists(file), folder.string(), " holds neither ", kOneFile, " nor ",
              kIndex);
    files_.push_back(std::make_unique<SafetensorsFile>(file));
    add(*files_.back());
  }
}

void HfFolder::open_shards(const Path& index) {
  const Json json = read_json_object(index);
  PHX_CHECK(json.contains("weight_map") && json["weight_map"].is_object(), index.string(),
            " has no \"weight_map\"");
  std::map<std::string, std::set<std::string>> by_file;
  for (const auto& [name, file] : json["weight_map"].items()) {
    PHX_CHECK(file.is_string(), index.string(), ": the file of ", name, " should be a string");
    check_file_name(file.get<std::string>(), index);
    by_file[file.get<std::string>()].insert(name);
  }
  for (const auto& [name, names] : by_file) {
    const Path path = folder_ / name;
    PHX_CHECK(std::filesystem::exists(path), index.string(), " names ", name, " with ",
              names.size(), " tensors, but it is not there: is the download complete?");
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    const SafetensorsFile& file = *files_.back();
    for (const std::string& tensor : names)
      PHX_CHECK(file.find(tensor), path.string(), " has no tensor ", tensor, ", though ", kIndex,
                " says so");
    for (const auto& tensor : file.tensors())
      PHX_CHECK(names.contains(tensor.name), path.string(), " holds ", tensor.name, ", which ",
                kIndex, " does not name there");
    add(file);
  }
}

void HfFolder::add(const SafetensorsFile& file) {
  for (const SafetensorsFile::Tensor& tensor : file.tensors()) {
    const std::optional<DType> dtype = dtype_of_safetensors(tensor.dtype);
    // Masks that were saved along; the tables say which names may be ignored.
    if (!dtype) {
      PHX_CHECK(tensor.dtype == "BOOL", file.path().string(), ": tensor ", tensor.name, " is ",
                tensor.dtype, ", a type that nothing here computes with");
    }
    tensors_[tensor.name] = {dtype.value_or(DType::u8), tensor.shape};
    places_[tensor.name] = {&file, &tensor};
  }
}

void HfFolder::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = places_.find(name);
  PHX_CHECK(found != places_.end(), folder_.string(), " has no tensor ", name);
  const auto& [file, tensor] = found->second;
  copy_box(tensor->bytes, tensors_.at(name), box, out, str_cat(file->path().string(), ": ", name));
  give_back(tensor->bytes);
}

std::string HfFolder::description() const {
  return str_cat(folder_.string(), " (Hugging Face, ", tensors_.size(), " tensors in ",
                 files_.size(), files_.size() == 1 ? " file)" : " files)");
}

std::shared_ptr<const TensorSource> open_hf_tensors(const Path& folder) {
  const bool safetensors =
      std::filesystem::exists(folder / kIndex) || std::filesystem::exists(folder / kOneFile);
  if (!safetensors && TorchBinFolder::is_one(folder))
    return std::make_shared<TorchBinFolder>(folder);
  return std::make_shared<HfFolder>(folder);
}

std::vector<Path> companion_files(const Path& folder) {
  static constexpr std::array kNames = {"generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "tokenizer.model",
                                        "vocab.json",
                                        "merges.txt",
                                        "vocab.txt",
                                        "added_tokens.json",
                                        "special_tokens_map.json",
                                        "chat_template.jinja",
                                        "chat_template.json"};
  std::vector<Path> files;
  for (const char* name : kNames)
    if (std::filesystem::is_regular_file(folder / name)) files.push_back(folder / name);
  return files;
}

Path kept_companions(const Path& native) { return native / "hf_files"; }

void keep_companions(const Path& hf, const Path& native) {
  const Path kept = kept_companions(native);
  make_folder(kept);
  for (const Path& file : companion_files(hf)) write_file(kept / file.filename(), read_file(file));
  write_file(kept / "config.json", read_file(hf / "config.json"));
}

}  // namespace phx
