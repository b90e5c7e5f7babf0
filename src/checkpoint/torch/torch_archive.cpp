#include "phalanx/checkpoint/torch/torch_archive.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {
namespace {

using Kind = PickleValue::Kind;

struct TorchDtype {
  DType dtype;
  TorchDtypeNames names;
};

constexpr auto kDtypes = std::to_array<TorchDtype>({
    {DType::f64, {"float64", "DoubleStorage"}},
    {DType::f32, {"float32", "FloatStorage"}},
    {DType::bf16, {"bfloat16", "BFloat16Storage"}},
    {DType::f16, {"float16", "HalfStorage"}},
    {DType::i64, {"int64", "LongStorage"}},
    {DType::i32, {"int32", "IntStorage"}},
    {DType::u8, {"uint8", "ByteStorage"}},
    {DType::u8, {"bool", "BoolStorage"}},  // a byte each, 0 or 1
    {DType::u16, {"uint16", nullptr}},
    {DType::f8e4m3, {"float8_e4m3fn", nullptr}},
    {DType::f8e5m2, {"float8_e5m2", nullptr}},
});

constexpr std::string_view kTorch = "torch.";
constexpr size_t kMaxDims = 64;
constexpr int kMaxDepth = 32;  // of dicts in dicts
constexpr size_t kMaxName = 2000;

// The first object of a file in the older form.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);

bool is_untyped(std::string_view storage_type) {
  return storage_type == "torch.UntypedStorage" || storage_type == "torch.storage.UntypedStorage" ||
         storage_type == "torch.storage._UntypedStorage";
}

// The name of a key: texts, and numbers as the optimizer's state has them.
std::optional<std::string> key_text(const PickleValue& key) {
  if (key.is(Kind::text)) return std::string(key.text);
  if (key.is(Kind::integer)) return std::to_string(key.integer);
  return std::nullopt;
}

// The function that makes a tensor, and its arguments.
struct TensorCall {
  std::string_view function;
  const PickleValue* args;
};

bool makes_tensors(std::string_view function) {
  return function.starts_with("torch._utils._rebuild_tensor");
}

// Past the parameters around it, and past what keeps the attributes that Python code gave a tensor:
// (function, class, arguments, attributes).
std::optional<TensorCall> tensor_call(const PickleValue* value) {
  for (int i = 0; i < 4 && value->is(Kind::object); ++i) {
    const auto& args = value->args->items;
    if (makes_tensors(value->callee->text)) return TensorCall{value->callee->text, value->args};
    if (value->is_object_of("torch._tensor._rebuild_from_type_v2")) {
      const bool known = args.size() == 4 && args[0]->is(Kind::global) &&
                         makes_tensors(args[0]->text) && args[1]->is(Kind::global) &&
                         args[1]->text == "torch.Tensor" && args[2]->is(Kind::tuple);
      return known ? std::optional(TensorCall{args[0]->text, args[2]}) : std::nullopt;
    }
    if (!value->callee->text.starts_with("torch._utils._rebuild_parameter") || args.empty())
      return std::nullopt;
    value = args[0];
  }
  return std::nullopt;
}

}  // namespace

std::optional<DType> dtype_of_torch(std::string_view name) {
  for (const TorchDtype& known : kDtypes) {
    if (name == known.names.dtype || (known.names.storage && name == known.names.storage))
      return known.dtype;
  }
  return std::nullopt;
}

TorchDtypeNames torch_names(DType dtype) {
  const auto* found = std::ranges::find(kDtypes, dtype, &TorchDtype::dtype);
  PHX_CHECK(found->names.storage != nullptr, "tensors of ", name(dtype),
            " are not written to PyTorch's files: older versions cannot read them");
  return found->names;
}

std::optional<Dims> dims_of(const PickleValue* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_object_of("torch.Size") && value->args->items.size() == 1)
    value = value->args->items[0];
  if (!value->is_sequence() || value->items.size() > kMaxDims) return std::nullopt;
  Dims dims;
  for (const PickleValue* item : value->items) {
    const auto dim = item->as_integer();
    if (!dim || *dim < 0) return std::nullopt;
    dims.push_back(*dim);
  }
  return dims;
}

void TorchTensor::copy(const Box& box, StridedBytes to) const {
  if (*num_elements(box.size) == 0) return;
  if (entry) entry->check();
  int64_t offset = 0;
  for (size_t i = 0; i < box.begin.size(); ++i) offset += box.begin[i] * strides[i];
  const int64_t element = size_of(info.dtype);
  copy_strided({bytes.data() + offset * element, strides}, to, box.size, element);
}

TorchArchive::TorchArchive(std::span<const std::byte> bytes, std::string where)
    : where_(std::move(where)) {
  if (ZipReader::looks_like_zip(bytes))
    open_zip(bytes);
  else
    open_legacy(bytes);
}

void TorchArchive::open_zip(std::span<const std::byte> bytes) {
  const ZipReader zip(bytes, where_);
  constexpr std::string_view kObject = "/data.pkl";
  std::string folder;
  const ZipEntry* object = nullptr;
  for (const auto& [name, entry] : zip.entries()) {
    if (!name.ends_with(kObject) || name.find('/') != name.size() - kObject.size()) continue;
    PHX_CHECK(object == nullptr, where_, " has two objects: ", printable(name), " and ",
              printable(folder), kObject);
    object = entry.get();
    folder = name.substr(0, name.size() - kObject.size());
  }
  PHX_CHECK(object != nullptr, where_,
            " is a zip archive without data.pkl: not a file of torch.save");
  if (const auto* order = zip.find(folder + "/byteorder")) {
    const auto word = order->bytes();
    const std::string_view text(reinterpret_cast<const char*>(word.data()), word.size());
    PHX_CHECK(text == "little", where_, " has the byte order '", printable(text),
              "'; only little-endian files are read");
  }
  const std::string data = folder + "/data/";
  for (const auto& [name, entry] : zip.entries()) {
    if (name.starts_with(data))
      storages_.emplace(name.substr(data.size()), Storage{entry->unchecked(), entry});
  }
  tree_ = std::make_unique<PickleTree>(object->bytes(), where_);
}

// A plain pickle; or five of them (a magic number, the version, sizes of types, the object, the
// keys of its storages) and then the storages: a count and the elements each.
void TorchArchive::open_legacy(std::span<const std::byte> bytes) {
  PHX_CHECK(bytes.size() >= 2 && bytes[0] == std::byte{0x80}, where_,
            " is no file of torch.save: neither a zip archive nor a pickle");
  const auto next = [&] {
    auto tree = std::make_unique<PickleTree>(bytes, where_);
    bytes = bytes.subspan(static_cast<size_t>(tree->consumed()));
    return tree;
  };
  auto magic = next();
  if (!magic->root().is(Kind::large_integer) || magic->root().text != kMagic) {
    PHX_CHECK(bytes.empty(), where_, " is a pickle with something behind it: not of torch.save");
    tree_ = std::move(magic);  // a plain pickle: an object without tensors
    return;
  }
  next();  // the version, 1001 since ever
  const auto system = next();
  const PickleValue* little = system->root().find("little_endian");
  PHX_CHECK(little == nullptr || !little->is(Kind::boolean) || little->integer == 1, where_,
            " is big-endian; only little-endian files are read");
  tree_ = next();
  const auto keys = next();
  PHX_CHECK(keys->root().is(Kind::list), where_, ": the list of storages is ",
            describe(keys->root()));

  // How large the elements are is said where the object refers to them.
  std::map<std::string_view, int64_t> sizes;
  for (const PickleValue& value : tree_->values()) {
    if (!value.is(Kind::persistent) || !value.args->is_sequence() || value.args->items.size() < 5)
      continue;
    const PickleValue &type = *value.args->items[1], &key = *value.args->items[2];
    if (!type.is(Kind::global) || !key.is(Kind::text)) continue;
    if (is_untyped(type.text)) {
      sizes[key.text] = 1;
    } else if (type.text.starts_with(kTorch)) {
      const auto dtype = dtype_of_torch(type.text.substr(kTorch.size()));
      PHX_CHECK(dtype, where_, " holds a ", type.text, ", which is not supported");
      sizes[key.text] = size_of(*dtype);
    }
  }
  for (const PickleValue* key : keys->root().items) {
    PHX_CHECK(key->is(Kind::text) && sizes.contains(key->text), where_, ": nothing refers to ",
              describe(*key), " of the list of storages");
    PHX_CHECK(bytes.size() >= 8, where_, ": the storages are cut off");
    int64_t count, size;
    std::memcpy(&count, bytes.data(), sizeof count);
    bytes = bytes.subspan(sizeof count);
    PHX_CHECK(count >= 0 && !__builtin_mul_overflow(count, sizes[key->text], &size) &&
                  static_cast<size_t>(size) <= bytes.size(),
              where_, ": a storage of ", count, " elements, but ", bytes.size(),
              " bytes are left: the file is cut off");
    storages_.emplace(key->text, Storage{bytes.first(static_cast<size_t>(size)), nullptr});
    bytes = bytes.subspan(static_cast<size_t>(size));
  }
}

bool TorchArchive::is_tensor(const PickleValue& value) const {
  return tensor_call(&value).has_value();
}

TorchArchive::Storage TorchArchive::storage(const PickleValue& value,
                                            const std::string& name) const {
  const PickleValue* id = value.is(Kind::persistent) ? value.args : nullptr;
  const bool known = id != nullptr && id->is(Kind::tuple) && id->items.size() >= 5 &&
                     id->items[0]->is(Kind::text) && id->items[0]->text == "storage" &&
                     id->items[1]->is(Kind::global) && id->items[2]->is(Kind::text);
  PHX_CHECK(known, where_, ": the tensor ", printable(name), " is a view of ", describe(value),
            " instead of a storage");
  PHX_CHECK(id->items.size() == 5 || id->items[5]->is(Kind::none), where_, ": the tensor ",
            printable(name), " is a view of a part of a storage, an old form that is not read");
  const auto found = storages_.find(id->items[2]->text);
  PHX_CHECK(found != storages_.end(), where_, ": the storage ", describe(*id->items[2]),
            " of the tensor ", printable(name), " is not in the file");
  return {found->second.bytes, found->second.entry, id->items[1]->text};
}

TorchTensor TorchArchive::tensor(const PickleValue& value, const std::string& name) const {
  const std::string where = str_cat(where_, ": the tensor ", printable(name));
  const auto call = tensor_call(&value);
  PHX_CHECK(call, where, " is ", describe(value), " instead");
  const auto& args = call->args->items;
  PHX_CHECK(args.size() >= 4, where, " is described by ", args.size(), " values");
  const Storage memory = storage(*args[0], name);

  std::string_view type = memory.type;
  if (call->function == "torch._utils._rebuild_tensor_v3") {
    PHX_CHECK(args.size() >= 7 && args[6]->is(Kind::global), where, " has no dtype");
    type = args[6]->text;
  }
  const auto dtype =
      type.starts_with(kTorch) ? dtype_of_torch(type.substr(kTorch.size())) : std::nullopt;
  PHX_CHECK(dtype, where, " is of the type ", type, ", which is not supported");

  const auto offset = args[1]->as_integer();
  const auto shape = dims_of(args[2]), strides = dims_of(args[3]);
  PHX_CHECK(offset && *offset >= 0 && shape && strides && shape->size() == strides->size(), where,
            " has no valid offset, sizes and strides");
  const auto count = num_elements(*shape);
  PHX_CHECK(count, where, " has the sizes ", text_of(*shape), ", which is too large");
  TorchTensor tensor{{*dtype, *shape}, *strides, {}, memory.entry};
  if (*count == 0) return tensor;
  int64_t last = *offset, reach;  // the furthest element
  bool fits = true;
  for (size_t i = 0; i < shape->size(); ++i)
    fits &= !__builtin_mul_overflow((*shape)[i] - 1, (*strides)[i], &reach) &&
            !__builtin_add_overflow(last, reach, &last);
  const int64_t element = size_of(*dtype);
  fits = fits && last < static_cast<int64_t>(memory.bytes.size()) / element;
  PHX_CHECK(fits, where, " reaches beyond its storage of ", memory.bytes.size(), " bytes: sizes ",
            text_of(*shape), ", strides ", text_of(*strides), ", offset ", *offset);
  tensor.bytes = memory.bytes.subspan(static_cast<size_t>(*offset * element),
                                      static_cast<size_t>((last - *offset + 1) * element));
  return tensor;
}

std::optional<double> TorchArchive::number(const PickleValue& value) const {
  if (value.is(Kind::integer)) return static_cast<double>(value.integer);
  if (value.is(Kind::real)) return value.real;
  if (!is_tensor(value)) return std::nullopt;
  const TorchTensor one = tensor(value, "of one number");
  if (*num_elements(one.info.shape) != 1) return std::nullopt;
  const Dims zeros(one.info.shape.size(), 0);
  return for_any_dtype(one.info.dtype, [&]<class T>() {
    T number;
    one.copy({zeros, one.info.shape}, {reinterpret_cast<std::byte*>(&number), zeros});
    if constexpr (std::is_integral_v<T>)
      return static_cast<double>(number);
    else
      return static_cast<double>(acc_t<T>(number));
  });
}

std::map<std::string, TorchTensor> TorchArchive::tensors(const PickleValue& dict) const {
  PHX_CHECK(dict.is(Kind::dict), where_, ": ", describe(dict),
            " where a dict of tensors should be");
  std::map<std::string, TorchTensor> result;
  struct Level {
    const PickleValue* dict;
    size_t next;  // the key whose turn it is
    std::string prefix;
  };
  std::vector<Level> levels = {{&dict, 0, ""}};
  // Dicts may be shared: a file of a few hundred bytes could name billions of tensors.
  int64_t steps = 8 * tree_->size() + 1000;
  while (!levels.empty()) {
    Level& level = levels.back();
    if (level.next == level.dict->items.size()) {
      levels.pop_back();
      continue;
    }
    PHX_CHECK(--steps > 0, where_, ": the same dicts are inside each other again and again");
    const PickleValue& key = *level.dict->items[level.next];
    const PickleValue& value = *level.dict->items[level.next + 1];
    level.next += 2;
    const auto text = key_text(key);
    if (!text) continue;
    const std::string name = level.prefix + *text;
    PHX_CHECK(name.size() <= kMaxName, where_, ": a name of ", name.size(),
              " bytes: ", printable(name));
    if (is_tensor(value)) {
      PHX_CHECK(result.emplace(name, tensor(value, name)).second, where_, ": the tensor ",
                printable(name), " is there twice");
    } else if (value.is(Kind::dict)) {
      PHX_CHECK(levels.size() < kMaxDepth, where_, ": more than ", kMaxDepth,
                " dicts inside each other at ", printable(name));
      levels.push_back({&value, 0, name + "."});
    }
  }
  return result;
}

}  // namespace phx
