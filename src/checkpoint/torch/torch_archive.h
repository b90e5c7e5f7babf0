// What torch.save wrote, in memory: an object tree, and tensors as views of the bytes. Both forms
// of the file are read, the zip archive and the older one without.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/pickle.h"
#include "phalanx/checkpoint/torch/strided_copy.h"
#include "phalanx/checkpoint/torch/zip.h"

namespace phx {

struct TorchTensor {
  TensorInfo info;
  Dims strides;                                // in elements, none negative
  std::span<const std::byte> bytes;            // from the first element to the end of the last
  std::shared_ptr<const ZipEntry> entry = {};  // that they lie in; none in the older form

  // `box` as in TensorSource::read, already checked; to.first is where its first element goes. The
  // first copy out of an entry checks all of it.
  void copy(const Box& box, StridedBytes to) const;
};

// "float32", "FloatStorage"; nothing for a type that tensors here cannot have.
std::optional<DType> dtype_of_torch(std::string_view name);
// How torch calls a dtype, and its storages; an error for the types whose storages have no name.
struct TorchDtypeNames {
  const char* dtype;
  const char* storage;
};
TorchDtypeNames torch_names(DType dtype);

class TorchArchive {
 public:
  // `bytes` is the whole file and must outlive the archive; `where` names it in errors.
  TorchArchive(std::span<const std::byte> bytes, std::string where);

  const PickleValue& root() const { return tree_->root(); }
  const std::string& where() const { return where_; }

  // Whether a value is a tensor (or a parameter), and which; `name` for errors.
  bool is_tensor(const PickleValue& value) const;
  TorchTensor tensor(const PickleValue& value, const std::string& name) const;

  // A number, or a tensor of one element as a number (counters, loss scales); nothing for others.
  std::optional<double> number(const PickleValue& value) const;

  // The tensors in a dict and in the dicts inside it, named by the keys with dots between.
  std::map<std::string, TorchTensor> tensors(const PickleValue& dict) const;

 private:
  struct Storage {
    std::span<const std::byte> bytes;
    std::shared_ptr<const ZipEntry> entry;  // none in the older form
    std::string_view type = {};             // "torch.FloatStorage"
  };

  void open_zip(std::span<const std::byte> bytes);
  void open_legacy(std::span<const std::byte> bytes);
  Storage storage(const PickleValue& id, const std::string& name) const;

  std::string where_;
  std::unique_ptr<PickleTree> tree_;
  std::map<std::string, Storage, std::less<>> storages_;
};

// The numbers of a tuple, a list or a torch.Size; nothing if it is something else.
std::optional<Dims> dims_of(const PickleValue* value);

}  // namespace phx
