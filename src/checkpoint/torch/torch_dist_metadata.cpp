#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

#include <algorithm>
#include <set>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/pickle.h"
#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {
namespace {

using Kind = PickleValue::Kind;

// Chunks of one tensor by where they begin; an object has the empty offset.
using Places = std::map<std::pair<std::string_view, Dims>, TorchDistPlace>;

// Of the objects here, which have a handful: a hostile one with a million, used a million times,
// would be searched for ever.
const PickleValue* find_attribute(const PickleValue& object, std::string_view name,
                                  const std::string& where) {
  constexpr size_t kMaxAttributes = 32;
  const PickleValue* state = object.state;
  PHX_CHECK(state == nullptr || state->items.size() <= 2 * kMaxAttributes, where, ": ",
            describe(object), " has too many attributes");
  return object.is(Kind::object) ? object.find(name) : nullptr;
}

const PickleValue& attribute(const PickleValue& object, std::string_view name,
                             const std::string& where) {
  const PickleValue* value = find_attribute(object, name, where);
  PHX_CHECK(value != nullptr, where, ": ", describe(object), " has no '", name, "'");
  return *value;
}

Dims dims_attribute(const PickleValue& object, std::string_view name, const std::string& where) {
  const PickleValue& value = attribute(object, name, where);
  const auto dims = dims_of(&value);
  PHX_CHECK(dims, where, ": '", name, "' is ", describe(value), " instead of sizes");
  return *dims;
}

TorchDistPlace place_of(const PickleValue& info, const std::string& where) {
  const PickleValue& file = attribute(info, "relative_path", where);
  const auto offset = attribute(info, "offset", where).as_integer();
  const auto length = attribute(info, "length", where).as_integer();
  PHX_CHECK(file.is(Kind::text) && offset && length && *offset >= 0 && *length >= 0, where,
            ": a place without file, offset and length");
  // A name with a folder in it could point anywhere.
  PHX_CHECK(!file.text.empty() && file.text.find('/') == file.text.npos && file.text != "..", where,
            ": '", printable(file.text), "' is no file of this folder");
  const PickleValue* transforms = find_attribute(info, "transform_descriptors", where);
  PHX_CHECK(transforms == nullptr || transforms->items.empty(), where,
            ": its chunks were transformed when they were saved (compressed, say): not read");
  return {std::string(file.text), *offset, *length};
}

Places read_places(const PickleValue& storage_data, const std::string& where) {
  PHX_CHECK(storage_data.is(Kind::dict), where, ": 'storage_data' is ", describe(storage_data));
  Places places;
  for (size_t i = 0; i + 1 < storage_data.items.size(); i += 2) {
    const PickleValue& index = *storage_data.items[i];
    const PickleValue& name = attribute(index, "fqn", where);
    PHX_CHECK(name.is(Kind::text), where, ": a place of ", describe(name));
    const PickleValue* offset = find_attribute(index, "offset", where);
    const auto dims = dims_of(offset);
    PHX_CHECK(dims || offset == nullptr || offset->is(Kind::none), where, ": the offset of '",
              printable(name.text), "' is ", describe(*offset));
    places[{name.text, dims.value_or(Dims())}] = place_of(*storage_data.items[i + 1], where);
  }
  return places;
}

DType dtype_of(const PickleValue& properties, const std::string& where) {
  const PickleValue* state = properties.state;
  const PickleValue* dtype = nullptr;
  if (state != nullptr && state->is(Kind::tuple) && !state->items.empty()) dtype = state->items[0];
  if (state != nullptr && state->is(Kind::dict)) dtype = state->find("dtype");
  PHX_CHECK(dtype != nullptr && dtype->is(Kind::global) && dtype->text.starts_with("torch."), where,
            " has no dtype");
  const auto known = dtype_of_torch(dtype->text.substr(6));
  PHX_CHECK(known, where, " is of the type ", dtype->text, ", which is not supported");
  return *known;
}

// No two boxes share an element.
void check_apart(std::vector<const Box*> boxes, const std::string& where) {
  // Sorted along the axis that is cut most, so that only neighbours are compared.
  size_t axis = 0, most = 0;
  for (size_t i = 0; i < (boxes.empty() ? 0 : boxes[0]->begin.size()); ++i) {
    std::set<int64_t> begins;
    for (const Box* box : boxes) begins.insert(box->begin[i]);
    if (begins.size() <= most) continue;
    most = begins.size();
    axis = i;
  }
  std::ranges::sort(boxes, {}, [&](const Box* box) { return box->begin[axis]; });
  int64_t comparisons =
      100'000'000;  // more than any checkpoint that was cut along a few axes needs
  for (size_t i = 0; i < boxes.size(); ++i) {
    const int64_t end = boxes[i]->begin[axis] + boxes[i]->size[axis];
    for (size_t j = i + 1; j < boxes.size() && boxes[j]->begin[axis] < end; ++j) {
      PHX_CHECK(--comparisons > 0, where, ": its ", boxes.size(),
                " chunks are in too much disorder");
      PHX_CHECK(!overlap(*boxes[i], *boxes[j]), where, ": its chunks at ", text_of(boxes[i]->begin),
                " and ", text_of(boxes[j]->begin), " overlap");
    }
  }
}

// Chunks lie within the tensor, do not overlap, and hold all of it.
void check_chunks(const TorchDistTensor& tensor, const std::string& where) {
  const Dims& shape = tensor.info.shape;
  const auto total = num_elements(shape);
  PHX_CHECK(total, where, " has the sizes ", text_of(shape), ", which is too large");
  std::vector<const Box*> boxes;
  int64_t covered = 0;
  for (const TorchDistChunk& chunk : tensor.chunks) {
    const int64_t count = num_elements(chunk.box.size).value_or(0);
    check_box(where, tensor.info, chunk.box,
              static_cast<size_t>(count * size_of(tensor.info.dtype)));
    covered += count;
    PHX_CHECK(covered <= *total, where, ": its chunks overlap");
    if (count > 0 && !shape.empty()) boxes.push_back(&chunk.box);
  }
  PHX_CHECK(covered == *total, where, ": its chunks hold ", covered, " of ", *total,
            " elements: the checkpoint is incomplete");
  check_apart(std::move(boxes), where);
}

TorchDistTensor read_tensor(std::string_view name, const PickleValue& entry, const Places& places,
                            const std::string& file) {
  const std::string where = str_cat(file, ": the tensor ", printable(name));
  TorchDistTensor tensor;
  tensor.info.dtype = dtype_of(attribute(entry, "properties", where), where);
  tensor.info.shape = dims_attribute(entry, "size", where);
  const PickleValue& chunks = attribute(entry, "chunks", where);
  PHX_CHECK(chunks.is_sequence(), where, ": its chunks are ", describe(chunks));
  for (const PickleValue* chunk : chunks.items) {
    TorchDistChunk result;
    result.box.begin = dims_attribute(*chunk, "offsets", where);
    result.box.size = dims_attribute(*chunk, "sizes", where);
    const auto place = places.find({name, result.box.begin});
    PHX_CHECK(place != places.end(), where, ": no file holds its chunk at ",
              text_of(result.box.begin), ": the checkpoint is incomplete");
    result.place = place->second;
    tensor.chunks.push_back(std::move(result));
  }
  check_chunks(tensor, where);
  return tensor;
}

// A key of one of several optimizers as the header says; others as they are.
std::string under_optimizer(std::string_view key) {
  constexpr std::string_view kChained = "chained_", kOptimizer = "optimizer.",
                             kState = "optimizer.state.";
  const size_t dot = key.find('.');
  if (!key.starts_with(kChained) || dot == key.npos) return std::string(key);
  const std::string_view rest = key.substr(dot + 1);
  if (rest.starts_with(kState)) return std::string(rest);
  if (!rest.starts_with(kOptimizer)) return std::string(key);
  return str_cat(kOptimizer, key.substr(0, dot + 1), rest.substr(kOptimizer.size()));
}

}  // namespace

TorchDistMetadata TorchDistMetadata::read(const Path& path) {
  return parse(MappedFile(path).bytes(), path.native());
}

TorchDistMetadata TorchDistMetadata::parse(std::span<const std::byte> bytes,
                                           const std::string& file) {
  const PickleTree tree(bytes, file);
  const PickleValue& entries = attribute(tree.root(), "state_dict_metadata", file);
  PHX_CHECK(entries.is(Kind::dict), file, ": 'state_dict_metadata' is ", describe(entries));
  const Places places = read_places(attribute(tree.root(), "storage_data", file), file);
  TorchDistMetadata result;
  // Chunks may be shared between tensors: counted, or a short file could describe billions.
  int64_t steps = tree.size();
  for (size_t i = 0; i + 1 < entries.items.size(); i += 2) {
    const PickleValue &key = *entries.items[i], &entry = *entries.items[i + 1];
    PHX_CHECK(key.is(Kind::text), file, ": a tensor is called ", describe(key));
    const std::string name = under_optimizer(key.text);
    bool is_new;
    const PickleValue* chunks = find_attribute(entry, "chunks", file);
    if (chunks == nullptr) {
      const auto place = places.find({key.text, Dims()});
      PHX_CHECK(place != places.end(), file, ": no file holds the object ", printable(name));
      is_new = result.objects.emplace(name, place->second).second;
    } else {
      steps -= static_cast<int64_t>(chunks->items.size());
      PHX_CHECK(steps >= 0, file, ": tensors share their chunks");
      is_new = result.tensors.emplace(name, read_tensor(key.text, entry, places, file)).second;
    }
    PHX_CHECK(is_new, file, ": ", printable(name), " is there twice");
  }
  return result;
}

}  // namespace phx
