// The safetensors format: eight bytes of header length, a JSON header, then the tensors' bytes.
// Here a tensor is a name, a dtype name, a shape and bytes; what they mean is the caller's
// business. Files may come from anywhere: everything the header says is checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/file.h"

namespace phx {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;  // "F32", "BF16", "F8_E4M3", "I64", ...
  std::vector<int64_t> shape;
};

// In bytes; nothing for a dtype that the format does not know, or that is not of whole bytes.
std::optional<int64_t> safetensors_dtype_size(std::string_view dtype);

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
 public:
  struct Tensor : SafetensorsEntry {
    // In the mapped file. May lie at any address: copy, do not cast, where alignment matters.
    std::span<const std::byte> bytes;
  };

  // Maps and checks the file; an error names the file, the tensor and what is wrong with it.
  explicit SafetensorsFile(const Path& path);

  // In the order of their bytes.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(const std::string& name) const;  // null if there is none
  const Tensor& at(const std::string& name) const;    // an error that names the file

  const SafetensorsMetadata& metadata() const { return metadata_; }
  const Path& path() const { return file_.path(); }

 private:
  void read_header(std::string_view header, int64_t data_begin);
  void check_layout() const;

  MappedFile file_;
  SafetensorsMetadata metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t> index_;
};

// The header of a file with these tensors in this order, its length in front: what stands before
// the first tensor's byte, which is at a multiple of `alignment`. `path` names the file in errors.
std::string safetensors_header(const Path& path, std::span<const SafetensorsEntry> entries,
                               const SafetensorsMetadata& metadata = {}, int64_t alignment = 8);

// Writes a file front to back: what it holds is said first, then the bytes of all tensors come in
// that order, in pieces of any size. The file appears with `commit`, complete or not at all.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const Path& path, std::vector<SafetensorsEntry> entries,
                    const SafetensorsMetadata& metadata = {});

  // The next bytes of tensor `name`, which must be the one whose turn it is.
  void append(const std::string& name, std::span<const std::byte> bytes);
  void commit();

 private:
  void skip_full_tensors();

  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<int64_t> sizes_;
  size_t current_ = 0;   // the tensor whose turn it is
  int64_t written_ = 0;  // of its bytes
};

}  // namespace phx
