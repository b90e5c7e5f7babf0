#include "phalanx/checkpoint/torch/torch_dist.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/master_fit.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

constexpr const char* kBackend = "torch_dist";
constexpr std::string_view kCommonObject = "common_state/shard_0_1";
constexpr std::string_view kOptimizer = "optimizer.";
constexpr std::string_view kMaster = "optimizer.master.";
// What the distributed optimizer keeps beside its tensors, of the first model-parallel rank.
constexpr std::string_view kDistributedObject = "distributed.dp_group_idx_0.";
constexpr std::string_view kOneShard = "/shard_0_1";

// In a layer with experts the norm before them is a module of its own. With --transformer-impl
// local Megatron still gives it the key that it has in other layers: this is its own key. The key
// itself if it is another's; nothing if its own key is there too.
std::optional<std::string> own_norm_key(const std::string& key, const TorchDistMetadata& metadata) {
  constexpr std::string_view kFused = "mlp.linear_fc1.layer_norm_";
  const size_t at = key.rfind(kFused);
  if (at == key.npos) return key;
  const std::string layer = key.substr(0, at);
  const auto has = [&](const std::string& name) { return metadata.tensors.contains(layer + name); };
  if (has("mlp.linear_fc1.weight") || !has("mlp.router.weight")) return key;
  const std::string own = "pre_mlp_layernorm." + key.substr(at + kFused.size());
  return has(own) ? std::nullopt : std::optional(layer + own);
}

std::string backend_of(const Path& folder) {
  const Path path = folder / "metadata.json";
  const auto json = try_parse_json(read_file(path));
  PHX_CHECK(json.is_object(), path.native(), " should be a JSON object");
  const auto backend = json.find("sharded_backend");
  PHX_CHECK(backend != json.end() && backend->is_string(), path.native(),
            " does not say its \"sharded_backend\"");
  return backend->get<std::string>();
}

}  // namespace

bool TorchDistCheckpoint::is_one(const Path& path) {
  return std::filesystem::exists(path / "metadata.json") &&
         std::filesystem::exists(path / ".metadata");
}

TorchDistCheckpoint::TorchDistCheckpoint(const Path& path, const TorchReadOptions& options)
    : path_(path), files_(path) {
  const std::string backend = backend_of(path);
  PHX_CHECK(backend == kBackend, (path / "metadata.json").native(), ": the checkpoint is of the ",
            "kind '", printable(backend), "'; only ", kBackend,
            " is read\n  hint: Megatron's own tools convert older kinds");
  metadata_ = TorchDistMetadata::read(path / ".metadata");
  open_files(options.optimizer);
  read_common();
  read_beside(options.optimizer);
  add_tensors(options);
}

// All that are wanted, and with every place inside: a checkpoint whose files are cut off fails
// here.
void TorchDistCheckpoint::open_files(bool optimizer) {
  for (const auto& [name, tensor] : metadata_.tensors) {
    if (!optimizer && name.starts_with(kOptimizer)) continue;
    for (const TorchDistChunk& chunk : tensor.chunks) files_.open(name, chunk.place);
  }
}

std::string TorchDistCheckpoint::object_json(const std::string& name, const TorchDistPlace& place) {
  files_.open(name, place);
  const TorchArchive archive = files_.archive_at(name, place);
  // Megatron of 2026 wraps its objects in a list of one.
  const PickleValue* root = &archive.root();
  if (root->is(PickleValue::Kind::list) && root->items.size() == 1) root = root->items[0];
  PHX_CHECK(root->is(PickleValue::Kind::dict), archive.where(), " is ", describe(archive.root()),
            " where a dict, or a list of one dict, should be");
  return pickle_json(*root, archive);
}

void TorchDistCheckpoint::read_common() {
  const Path file = path_ / "common.pt";
  const auto object = metadata_.objects.find(std::string(kCommonObject));
  if (object != metadata_.objects.end()) {
    common_ = object_json(object->first, object->second);
  } else if (std::filesystem::exists(file)) {
    const MappedFile bytes(file);
    const TorchArchive archive(bytes.bytes(), file.native());
    PHX_CHECK(archive.root().is(PickleValue::Kind::dict), file.native(), " is ",
              describe(archive.root()), " where a dict should be");
    common_ = pickle_json(archive.root(), archive);
  }
}

// Under dp_reshardable these stand beside the buckets instead: Adam's step, the loss scale.
void TorchDistCheckpoint::read_beside(bool optimizer) {
  nlohmann::json common = parse_json(common_);
  const auto add = [&](nlohmann::json& into, const std::string& prefix) {
    for (const char* name : {"optimizer", "grad_scaler"}) {
      const auto beside =
          metadata_.objects.find(str_cat(prefix, kDistributedObject, name, kOneShard));
      if (beside == metadata_.objects.end()) continue;
      if (!into.is_null() && !into.is_object()) continue;  // a list: of another kind
      try {
        into[name] = parse_json(object_json(beside->first, beside->second));
      } catch (const Error& error) {
        PHX_CHECK(!optimizer, error.what(),
                  "\n  hint: --no-load-optim (of convert import: --weights-only) leaves optimizer "
                  "state behind");
      }
    }
  };
  nlohmann::json& whole = common["optimizer"];
  add(whole, std::string(kOptimizer));
  for (const char* number : {"0", "1"})
    if (whole.is_object() && whole.contains(number))
      add(whole[number], str_cat(kOptimizer, "chained_", number, "."));
  if (whole.is_null()) common.erase("optimizer");
  common_ = json_text(common);
}

// How the distributed optimizer cut its state, in Megatron's words.
std::string TorchDistCheckpoint::sharding_type() const {
  // Only this kind keeps it as an object a rank.
  for (const auto& [name, place] : metadata_.objects)
    if (name.starts_with(kOptimizer) && name.find(".param_state/") != name.npos)
      return "dp_zero_gather_scatter";
  const nlohmann::json common = parse_json(common_);
  for (const auto& [object, key] : {std::pair("optimizer", "param_state_sharding_type"),
                                    std::pair("content_metadata", "distrib_optim_sharding_type")}) {
    const auto found = common.find(object);
    if (found == common.end() || !found->is_object()) continue;
    const auto type = found->find(key);
    if (type != found->end() && type->is_string()) return type->get<std::string>();
  }
  return "not known";
}

void TorchDistCheckpoint::add_tensors(const TorchReadOptions& options) {
  int64_t left_out = 0;
  for (const auto& [key, tensor] : metadata_.tensors) {
    if (!options.optimizer && key.starts_with(kOptimizer)) continue;
    const std::optional<std::string> read_as = own_norm_key(key, metadata_);
    if (!read_as) continue;
    auto parts = parts_of_key(*read_as, tensor.info.shape);
    // Of a kind whose tensors are flattened ranges, nothing is known to lie where the model's does.
    const size_t dot =
        key.starts_with(kOptimizer) ? key.find('.', sizeof("optimizer.state.") - 1) : key.npos;
    if (dot != key.npos) {
      const auto model = metadata_.tensors.find(key.substr(dot + 1));
      if (model == metadata_.tensors.end() || model->second.info.shape != tensor.info.shape)
        parts.clear();
      if (parts.empty()) ++left_out;
    }
    for (StackedPart& part : parts) {
      // Masters have two names there, with the distributed optimizer and without; ours have both.
      if (part.name.starts_with(kMaster) && infos_.contains(part.name)) continue;
      TensorInfo info = tensor.info;
      info.shape.erase(info.shape.begin(),
                       info.shape.begin() + static_cast<ptrdiff_t>(part.index.size()));
      if (options.vocab_size > 0 && has_vocabulary_rows(part.name) && !info.shape.empty())
        info.shape[0] = std::min(info.shape[0], options.vocab_size);
      PHX_CHECK(infos_.emplace(part.name, info).second, (path_ / ".metadata").native(), ": ",
                printable(part.name), " is there twice");
      parts_[part.name] = {&tensor, std::move(part.index)};
    }
  }
  if (!options.optimizer) return;
  if (has_bucket_state(metadata_))
    add_buckets();
  else if (left_out > 0)
    notes_.push_back(str_cat(path_.native(), ": ", left_out,
                             " tensors of optimizer state are of a kind that is not read (its "
                             "sharding type is ",
                             printable(sharding_type()),
                             "): they have neither the model's shapes nor are they buckets"));
  else if (optimizer_saved() && !has_optimizer_tensors())
    notes_.push_back(str_cat(path_.native(),
                             ": its optimizer state is not saved as tensors (its sharding type is ",
                             printable(sharding_type()), "), which is not read"));
}

// Tries both orders of parameters, first that of the run's arguments; the masters, which are the
// weights before rounding, tell which is right.
void TorchDistCheckpoint::add_buckets() {
  std::map<std::string, TensorInfo> model;
  for (const auto& [name, info] : infos_) {
    if (name.starts_with(kOptimizer) || is_buffer(name)) continue;
    const Part& part = parts_.at(name);
    const Dims& shape = part.tensor->info.shape;
    model[name] = {info.dtype,
                   Dims(shape.begin() + static_cast<ptrdiff_t>(part.index.size()), shape.end())};
  }
  const nlohmann::json args = parse_json(common_).value("args", nlohmann::json());
  std::string problem;
  const NormModules first = args.is_object() ? norm_modules(args) : NormModules::fused;
  const NormModules second =
      first == NormModules::fused ? NormModules::separate : NormModules::fused;
  for (const NormModules norms : {first, second}) {
    bool fit = false;
    try {
      const ModuleOrder order{norms,
                              args.is_object() ? expert_modules(args) : ExpertModules::sequential};
      flat_parts_ = bucket_parts(metadata_, model, args, order);
      for (const auto& [name, parts] : flat_parts_)
        for (const FlatPart& part : parts)
          for (const TorchDistChunk& chunk : part.flat->chunks)
            if (chunk.box.size[0] > 0) flat_chunks_[part.flat][chunk.box.begin[0]] = &chunk;
      fit = masters_fit_weights();
    } catch (const Error& error) {
      if (problem.empty()) problem = error.what();
      continue;
    }
    if (fit) {
      for (const auto& [name, parts] : flat_parts_) {
        const std::string tensor = name.substr(name.find('.', kOptimizer.size()) + 1);
        infos_[name] = {DType::f32, infos_.at(tensor).shape};
      }
      return;
    }
    if (problem.empty()) problem = "the masters in its buckets are not those of the weights";
  }
  flat_parts_.clear();
  flat_chunks_.clear();
  notes_.push_back(
      str_cat(path_.native(), ": its optimizer state (dp_reshardable) cannot be read: ", problem));
}

// Looks at two corners of what every rank had.
bool TorchDistCheckpoint::masters_fit_weights() const {
  for (const auto& [name, parts] : flat_parts_) {
    if (!name.starts_with(kMaster)) continue;
    const std::string weight = name.substr(kMaster.size());
    const DType dtype = infos_.at(weight).dtype;
    for (const FlatPart& part : parts) {
      for (const bool last : {false, true}) {
        Box box = part.box;
        for (size_t i = 0; i < box.size.size(); ++i) {
          const int64_t size = std::min<int64_t>(box.size[i], i + 1 == box.size.size() ? 64 : 4);
          if (last) box.begin[i] += box.size[i] - size;
          box.size[i] = size;
        }
        const size_t count = static_cast<size_t>(*num_elements(box.size));
        std::vector<float> masters(count);
        copy_flat(part, box, std::as_writable_bytes(std::span(masters)));
        std::vector<std::byte> stored(count * static_cast<size_t>(size_of(dtype)));
        const Part& whole = parts_.at(weight);
        copy_stacked(weight, whole, box, stored);
        if (master_misfit(dtype, stored, masters)) return false;
      }
    }
  }
  return true;
}

bool TorchDistCheckpoint::has_optimizer_tensors() const {
  const auto first = metadata_.tensors.lower_bound(std::string(kOptimizer));
  return first != metadata_.tensors.end() && first->first.starts_with(kOptimizer);
}

bool TorchDistCheckpoint::optimizer_saved() const {
  const auto object = metadata_.objects.lower_bound(std::string(kOptimizer));
  return has_optimizer_tensors() ||
         (object != metadata_.objects.end() && object->first.starts_with(kOptimizer)) ||
         parse_json(common_).contains("optimizer");
}

std::string TorchDistCheckpoint::description() const {
  return str_cat(path_.filename().native(), " (torch_dist, ", infos_.size(), " tensors)");
}

}  // namespace phx
