// Where Megatron's distributed optimizer keeps a parameter's state. Each rank lays its parameters
// into flat buffers, one for every type; a buffer is cut into buckets, and files hold a bucket (or
// all of a buffer's buckets, one after the other) as one long tensor. This is the arithmetic of
// that: it reads no files and knows no keys.
//
// Files hold a bucket without the padding at its end, so that places do not depend on the number of
// data-parallel ranks.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/core/dtype.h"

namespace phx {

// A parameter of one rank, its own part of it.
struct BufferParameter {
  std::string name;
  int64_t numel = 0;
  DType dtype = DType::f32;
  // The word embedding of the first stage and its copy on the last one, where they are tied and not
  // on the same stage: it is a bucket by itself.
  bool shared_embedding = false;
};

struct BufferRules {
  std::optional<int64_t> bucket_size;  // elements after which a bucket ends; nothing: never
  int64_t alignment = 64;              // of where a parameter begins; 1 before the middle of 2024
};

// What a run's arguments (a namespace as JSON) say of one chunk of the model on one pipeline rank.
// `num_parameters`: elements of all parameters of the rank, over all its chunks.
BufferRules buffer_rules(const nlohmann::json& args, int64_t num_parameters, int64_t pipeline_rank,
                         int64_t chunk);

struct BufferPlace {
  size_t parameter;  // in the list that was given
  int64_t begin;     // in its bucket
};
struct BufferBucket {
  int64_t numel = 0;  // as in files: with padding between parameters, without that at the end
  std::vector<BufferPlace> places;
};
struct MegatronBuffer {
  DType dtype = DType::f32;  // of its parameters
  std::vector<BufferBucket> buckets;
};

// The buffers of one chunk of a model, in their order. `parameters` are in the order in which the
// model registered them (named_parameters): sort_as_registered() where nothing else says it. A rank
// with several chunks has the buffers of the first, then those of the second.
std::vector<MegatronBuffer> megatron_buffers(std::span<const BufferParameter> parameters,
                                             const BufferRules& rules);

// Norms are modules of their own (--transformer-impl local), or part of the linear layer behind
// them (transformer_engine), which registers them later.
enum class NormModules : uint8_t { separate, fused };
NormModules norm_modules(const nlohmann::json& args);

// Experts are MLPs, one after the other, or two grouped layers (--moe-grouped-gemm): all fc1, then
// all fc2.
enum class ExpertModules : uint8_t { sequential, grouped };
ExpertModules expert_modules(const nlohmann::json& args);

struct ModuleOrder {
  NormModules norms = NormModules::fused;
  ExpertModules experts = ExpertModules::sequential;
};

// Names of one chunk's parameters, layers and experts with numbers, in the order in which
// Megatron's GPT model registers them. Norms may have either name. An error for a name that is not
// of that model.
void sort_as_registered(std::vector<std::string>& names, const ModuleOrder& order);

}  // namespace phx
