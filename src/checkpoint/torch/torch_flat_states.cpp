// Adam's state with the distributed optimizer: parts of flat buffers.
#include <map>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/megatron_buffers.h"
#include "phalanx/checkpoint/torch/torch_states.h"

namespace phx {
namespace {

using Kind = PickleValue::Kind;

const PickleValue* find_number(const PickleValue& dict, int64_t key) {
  if (!dict.is(Kind::dict)) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2)
    if (dict.items[i]->as_integer() == key) return dict.items[i + 1];
  return nullptr;
}

// The flat tensors of one buffer: "param", "exp_avg", "exp_avg_sq".
std::map<std::string, TorchTensor> flat_tensors(const TorchArchive& file, int64_t index,
                                                int64_t numel) {
  const PickleValue* types = find_number(file.root(), index);
  PHX_CHECK(types != nullptr && types->is(Kind::dict) && types->items.size() == 2, file.where(),
            " should hold buffer ", index, " of the model's parameters, of one type");
  const PickleValue& buffer = *types->items[1];
  std::map<std::string, TorchTensor> tensors;
  for (const char* key : {"param", "exp_avg", "exp_avg_sq"}) {
    const PickleValue* value = buffer.find(key);
    PHX_CHECK(value != nullptr, file.where(), ": buffer ", index, " has no '", key,
              "': this is not Adam state");
    TorchTensor tensor = file.tensor(*value, key);
    PHX_CHECK(tensor.info.dtype == DType::f32 && tensor.info.shape == Dims{numel} &&
                  (numel == 0 || tensor.strides == Dims{1}),
              file.where(), ": '", key, "' of buffer ", index, " should be F32 [", numel,
              "] for the model's parameters, but is ", describe(tensor.info));
    tensors.emplace(key, std::move(tensor));
  }
  return tensors;
}

// A parameter's part of a flat tensor.
TorchTensor part_of(const TorchTensor& flat, int64_t begin, const Dims& shape) {
  const int64_t numel = *num_elements(shape);
  constexpr auto kSize = static_cast<int64_t>(sizeof(float));
  return {
      {DType::f32, shape},
      dense_strides(shape),
      flat.bytes.subspan(static_cast<size_t>(begin * kSize), static_cast<size_t>(numel * kSize)),
      flat.entry};
}

int64_t length_of(const MegatronBuffer& buffer) {
  int64_t length = 0;
  for (const BufferBucket& bucket : buffer.buckets) length += bucket.numel;
  return length;
}

std::vector<BufferParameter> buffer_parameters(const TorchRank& rank, const TorchChunk& chunk,
                                               size_t index) {
  const bool tied = !flag_at(rank.args, "untie_embeddings_and_output_weights");
  const bool first = rank.stage == 0 && index == 0;
  const bool last = rank.stage == rank.num_stages - 1 && index + 1 == rank.chunks.size();
  std::vector<BufferParameter> parameters;
  for (const std::string& name : chunk.parameters) {
    const TorchTensor& tensor = chunk.tensors.at(name);
    const TensorInfo& info = tensor.info;
    const int64_t numel = *num_elements(info.shape);
    // So that no sum of them is larger than the file.
    PHX_CHECK(static_cast<int64_t>(tensor.bytes.size()) / size_of(info.dtype) == numel,
              rank.file.where(), ": ", printable(name), " does not lie in one piece");
    const bool shared = tied && rank.num_stages > 1 &&
                        ((first && name == "embedding.word_embeddings.weight") ||
                         (last && name == "output_layer.weight"));
    parameters.push_back({name, numel, info.dtype, shared});
  }
  return parameters;
}

std::vector<TorchStates> flat_states(const TorchRank& rank, int64_t alignment) {
  const TorchArchive& file = *rank.distributed;
  int64_t num_parameters = 0, index = 0;
  std::vector<std::vector<BufferParameter>> parameters;
  for (size_t i = 0; i < rank.chunks.size(); ++i) {
    parameters.push_back(buffer_parameters(rank, rank.chunks[i], i));
    for (const BufferParameter& parameter : parameters[i]) num_parameters += parameter.numel;
  }
  std::vector<TorchStates> result;
  for (size_t i = 0; i < rank.chunks.size(); ++i) {
    const TorchChunk& chunk = rank.chunks[i];
    BufferRules rules =
        buffer_rules(rank.args, num_parameters, rank.stage, static_cast<int64_t>(i));
    rules.alignment = alignment;
    TorchStates& states = result.emplace_back();
    for (const MegatronBuffer& buffer : megatron_buffers(parameters[i], rules)) {
      const auto flat = flat_tensors(file, index++, length_of(buffer));
      int64_t begin = 0;  // of the bucket: they follow each other without padding
      for (const BufferBucket& bucket : buffer.buckets) {
        for (const BufferPlace& place : bucket.places) {
          const std::string& name = chunk.parameters[place.parameter];
          const TorchTensor& weight = chunk.tensors.at(name);
          const auto part = [&](const char* key) {
            return part_of(flat.at(key), begin + place.begin, weight.info.shape);
          };
          check_master(file.where(), name, weight, part("param"));
          if (buffer.dtype != DType::f32) states[kMaster][name] = part("param");
          for (const auto& [key, prefix] : kMoments) states[prefix][name] = part(key);
        }
        begin += bucket.numel;
      }
    }
  }
  PHX_CHECK(find_number(file.root(), index) == nullptr, file.where(), " holds more than the ",
            index, " buffers of the model's parameters");
  return result;
}

}  // namespace

std::vector<TorchStates> distributed_states(const TorchRank& rank) {
  PHX_CHECK(rank.distributed != nullptr, rank.file.where(),
            " was saved with --use-distributed-optimizer, but there is no distrib_optim.pt beside "
            "it");
  const TorchArchive& file = *rank.distributed;
  PHX_CHECK(file.root().is(Kind::dict), file.where(), " is ", describe(file.root()),
            " instead of one optimizer's state");
  PHX_CHECK(file.root().find("buckets_coalesced") != nullptr, file.where(),
            " is of the form before February 2024, which is not read\n"
            "  hint: Megatron's --ckpt-convert-update-legacy-dist-opt-format brings it up to date");
  // Versions before the middle of 2024 did not align parameters; what does not fit is an error.
  try {
    return flat_states(rank, BufferRules().alignment);
  } catch (const Error&) {
    try {
      return flat_states(rank, 1);
    } catch (const Error&) {
    }
    throw;
  }
}

}  // namespace phx
