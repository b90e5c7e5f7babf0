// Tensors in memory, and tools to look into sources.
#pragma once

#include <cstring>
#include <map>
#include <random>

#include "checkpoint/copy_box.h"
#include "checkpoint/tensor_source.h"
#include "convert/hf_folder.h"

namespace phx {

class TensorsInMemory : public TensorSource {
 public:
  TensorsInMemory() = default;
  explicit TensorsInMemory(const TensorSource& source) {
    for (const auto& [name, info] : source.tensors()) {
      std::vector<std::byte> bytes(size_t(whole_box(info.shape).numel() * size_of(info.dtype)));
      source.read(name, whole_box(info.shape), bytes);
      set(name, info, bytes);
    }
  }
  void set(const std::string& name, const TensorInfo& info, std::vector<std::byte> bytes) {
    tensors_[name] = info;
    bytes_[name] = std::move(bytes);
  }
  void erase(const std::string& name) {
    tensors_.erase(name);
    bytes_.erase(name);
  }
  void rename(const std::string& from, const std::string& to) {
    set(to, tensors_.at(from), bytes_.at(from));
    erase(from);
  }
  std::vector<std::byte>& bytes(const std::string& name) { return bytes_.at(name); }
  std::vector<std::string> names() const {
    std::vector<std::string> list;
    for (const auto& [name, info] : tensors_) list.push_back(name);
    return list;
  }

  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
    copy_box(bytes_.at(name), tensors_.at(name), box, out, name);
  }
  std::string description() const override { return "memory"; }

 private:
  TensorInfos tensors_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

inline Box random_box(const std::vector<int64_t>& shape, std::mt19937& random) {
  Box box;
  for (const int64_t extent : shape) {
    const int64_t begin = std::uniform_int_distribution<int64_t>(0, extent)(random);
    box.begin.push_back(begin);
    box.size.push_back(std::uniform_int_distribution<int64_t>(0, extent - begin)(random));
  }
  return box;
}

inline Path hf_fixture(const std::string& name) { return Path(PHX_TEST_DATA) / "hf" / name; }

inline constexpr const char* kHfFixtures[] = {"gpt2",      "llama2",  "llama3", "llama_bias",
                                              "llama_bin", "mistral", "qwen2",  "qwen2_yarn",
                                              "qwen3",     "gemma1",  "gemma2", "gemma3"};

}  // namespace phx
