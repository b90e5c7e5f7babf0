// Tensors in memory, as a source.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/checkpoint/copy_box.h"
#include "phalanx/checkpoint/tensor_source.h"

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

}  // namespace phx
