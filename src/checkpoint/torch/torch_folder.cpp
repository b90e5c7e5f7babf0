#include "phalanx/checkpoint/torch/torch_folder.h"

#include <algorithm>
#include <charconv>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

constexpr std::string_view kRank = "mp_rank_";
constexpr const char* kFile = "model_optim_rng.pt";
constexpr const char* kDistributedFile = "distrib_optim.pt";
constexpr const char* kOutput = "output_layer.weight";
// Before 3.0 the rows of q, k and v had other orders, and models had other names.
constexpr double kVersion = 3.0;

// "mp_rank_01_003" -> {1, 3}; empty for other names.
std::vector<int64_t> rank_numbers(const std::string& name) {
  if (!name.starts_with(kRank)) return {};
  std::vector<int64_t> numbers;
  const char *at = name.data() + kRank.size(), *end = name.data() + name.size();
  while (at < end) {
    int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec != std::errc() || number < 0 || number > 100'000) return {};
    numbers.push_back(number);
    if (parsed.ptr < end && *parsed.ptr != '_') return {};
    at = parsed.ptr + 1;
  }
  return numbers;
}

int64_t num_layers_of(const std::map<std::string, TorchTensor>& tensors) {
  int64_t count = 0;
  for (const auto& [name, tensor] : tensors) {
    if (const auto number = layer_number(name)) count = std::max(count, number->layer + 1);
  }
  return count;
}

// Our name of a chunk's tensor, whose layers are numbered from 0: the layer's number in the model,
// and norms in the linear layer behind them.
std::string model_name(const std::map<std::string, TorchTensor>& chunk, const std::string& name,
                       int64_t first_layer) {
  const auto number = layer_number(name);
  if (!number) return name;
  const std::string layer = name.substr(0, number->end + 1);  // with its dot
  std::string inside = with_fused_norms(name.substr(layer.size()));
  // Only where there is such a layer: a norm before experts stays by itself.
  const std::string linear = inside.substr(0, inside.rfind('.')) + ".weight";
  if (!chunk.contains(layer + linear)) inside = name.substr(layer.size());
  return str_cat(name.substr(0, number->begin), first_layer + number->layer, ".", inside);
}

}  // namespace

TorchFolder::RankFile::RankFile(const Path& path)
    : file(path), archive(file.bytes(), path.native()) {
  const PickleValue* version = archive.root().find("checkpoint_version");
  const auto number = version == nullptr ? std::nullopt : archive.number(*version);
  const double known = number.value_or(0);
  for (int i = -1; i < 64; ++i) {
    const std::string key = i < 0 ? "model" : str_cat("model", i);
    const PickleValue* model = archive.root().find(key);
    if (model == nullptr && i >= 0) break;
    if (model == nullptr) continue;
    PHX_CHECK(model->find("language_model") == nullptr && known >= kVersion, path.native(),
              " is of Megatron's first models (checkpoint_version ", known, ", ",
              "names and order of rows are others): only version 3.0 is read"
              "\n  hint: a Megatron of 2023 loads it and saves it with --use-mcore-models");
    add_model(*model);
    if (i < 0) break;
  }
  PHX_CHECK(!chunks.empty(), path.native(), " has no 'model'");
  const Path beside = path.parent_path() / kDistributedFile;
  if (std::filesystem::exists(beside)) distributed_path = beside;
}

// The dict has its keys in the order in which the model registered its parameters.
void TorchFolder::RankFile::add_model(const PickleValue& model) {
  TorchChunk& chunk = chunks.emplace_back();
  chunk.tensors = archive.tensors(model);
  std::erase_if(chunk.tensors, [](const auto& item) {
    return item.first.find("_extra_state") != item.first.npos;
  });
  for (size_t i = 0; i + 1 < model.items.size(); i += 2) {
    const PickleValue& key = *model.items[i];
    if (!key.is(PickleValue::Kind::text)) continue;
    const auto found = chunk.tensors.find(std::string(key.text));
    if (found != chunk.tensors.end() && is_float(found->second.info.dtype))
      chunk.parameters.push_back(found->first);
  }
  // A file of a few bytes could otherwise ask for any amount of memory.
  for (const auto& [name, tensor] : chunk.tensors) {
    PHX_CHECK(!name.starts_with("mtp."), archive.where(),
              " has layers of multi-token prediction, which are read from torch_dist folders only",
              "\n  hint: save it with --ckpt-format torch_dist");
    const int64_t held = static_cast<int64_t>(tensor.bytes.size()) / size_of(tensor.info.dtype);
    PHX_CHECK(*num_elements(tensor.info.shape) <= held, archive.where(), ": ", printable(name),
              " is ", describe(tensor.info), ", but its storage has ", held, " elements");
  }
}

bool TorchFolder::is_one(const Path& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (!rank_numbers(entry.path().filename().native()).empty()) return true;
  }
  return false;
}

TorchFolder::TorchFolder(const Path& path, const TorchReadOptions& options) : path_(path) {
  open_ranks();
  check_arguments();
  if (options.optimizer) open_optimizer();
  // Stage by stage for the first chunk of each, then the second: that is the order of the layers.
  const size_t num_chunks = ranks_[0][0]->chunks.size();
  int64_t first_layer = 0;
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (size_t stage = 0; stage < ranks_.size(); ++stage) {
      for (const auto& rank : ranks_[stage])
        PHX_CHECK(rank->chunks.size() == num_chunks, rank->archive.where(), " has ",
                  rank->chunks.size(), " parts of the model, the first rank ", num_chunks);
      add_chunk(stage, chunk, first_layer, options);
      first_layer += num_layers_of(ranks_[stage][0]->chunks[chunk].tensors);
    }
  }
  if (!tied_ || !infos_.contains("embedding.word_embeddings.weight")) return;
  // The last stage's copy of the embedding.
  std::erase_if(infos_, [](const auto& item) { return item.first.ends_with(kOutput); });
  std::erase_if(parts_, [](const auto& item) { return item.first.ends_with(kOutput); });
}

void TorchFolder::open_ranks() {
  std::map<std::pair<int64_t, int64_t>, Path> files;  // by stage and tensor rank
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const auto numbers = rank_numbers(entry.path().filename().native());
    if (numbers.empty()) continue;
    PHX_CHECK(numbers.size() <= 2, entry.path().native(),
              " was saved with expert parallelism, which is not read in this form\n"
              "  hint: save it with --ckpt-format torch_dist");
    files[{numbers.size() == 2 ? numbers[1] : 0, numbers[0]}] = entry.path() / kFile;
  }
  PHX_CHECK(!files.empty(), path_.native(), " has no folder ", kRank, "00");
  const int64_t num_stages = files.rbegin()->first.first + 1;
  const int64_t num_ranks = static_cast<int64_t>(files.size()) / num_stages;
  for (int64_t stage = 0; stage < num_stages; ++stage) {
    auto& ranks = ranks_.emplace_back();
    for (int64_t rank = 0; rank < std::max<int64_t>(num_ranks, 1); ++rank) {
      const auto found = files.find({stage, rank});
      PHX_CHECK(found != files.end(), path_.native(), " has ", files.size(),
                " folders of ranks, but none of tensor rank ", rank, " and pipeline rank ", stage,
                ": the checkpoint is incomplete");
      ranks.push_back(std::make_unique<RankFile>(found->second));
    }
  }
  PHX_CHECK(num_stages * num_ranks == static_cast<int64_t>(files.size()), path_.native(), " has ",
            files.size(), " folders of ranks for ", num_stages,
            " pipeline ranks: the checkpoint is incomplete");
}

// What the run said of itself, where it did.
void TorchFolder::check_arguments() {
  const PickleValue& object = ranks_[0][0]->archive.root();
  nlohmann::json common = nlohmann::json::object();
  for (const char* key : {"args", "iteration", "checkpoint_version", "opt_param_scheduler"}) {
    const PickleValue* value = object.find(key);
    if (value != nullptr) common[key] = parse_json(pickle_json(*value));
  }
  if (object.find("optimizer") != nullptr)
    common["optimizer"] = parse_json(torch_optimizer_json(ranks_[0][0]->archive));
  common_ = json_text(common);
  if (!common.contains("args") || !common["args"].is_object()) return;
  const auto& args = common["args"];
  const auto expect = [&](const char* key, int64_t here) {
    const auto found = args.find(key);
    if (found == args.end() || !found->is_number_integer()) return;
    PHX_CHECK(found->get<int64_t>() == here, path_.native(), " was saved with ", key, " ",
              found->get<int64_t>(), ", but there are files of ", here,
              ": the checkpoint is incomplete, or of a kind that is not read");
  };
  const auto experts = args.find("num_experts");
  PHX_CHECK(experts == args.end() || !experts->is_number_integer(), path_.native(),
            " holds a model with experts, which is not read in this form\n"
            "  hint: save it with --ckpt-format torch_dist");
  expect("tensor_model_parallel_size", static_cast<int64_t>(ranks_[0].size()));
  expect("expert_model_parallel_size", 1);
  expect("pipeline_model_parallel_size", static_cast<int64_t>(ranks_.size()));
  const auto untied = args.find("untie_embeddings_and_output_weights");
  tied_ = untied != args.end() && untied->is_boolean() && !untied->get<bool>();
}

// All of the optimizer's state, or why not: whether that is an error is the caller's to say.
void TorchFolder::open_optimizer() {
  const nlohmann::json common = parse_json(common_);
  const nlohmann::json args = common.value("args", nlohmann::json::object());
  try {
    for (size_t stage = 0; stage < ranks_.size(); ++stage) {
      for (const auto& rank : ranks_[stage]) {
        if (!rank->distributed_path.empty()) {
          rank->distributed_file.emplace(rank->distributed_path);
          rank->distributed.emplace(rank->distributed_file->bytes(),
                                    rank->distributed_path.native());
        }
        rank->states = torch_optimizer_states(
            {.file = rank->archive,
             .distributed = rank->distributed ? &*rank->distributed : nullptr,
             .chunks = rank->chunks,
             .args = args,
             .stage = static_cast<int64_t>(stage),
             .num_stages = static_cast<int64_t>(ranks_.size())});
      }
    }
  } catch (const Error& error) {
    why_no_optimizer_ = error.what();
    for (const auto& stage : ranks_)
      for (const auto& rank : stage) rank->states.clear();
  }
}

bool TorchFolder::optimizer_saved() const {
  const RankFile& rank = *ranks_[0][0];
  return !rank.distributed_path.empty() || rank.archive.root().find("optimizer") != nullptr;
}

void TorchFolder::add_chunk(size_t stage, size_t chunk, int64_t first_layer,
                            const TorchReadOptions& options) {
  const auto& ranks = ranks_[stage];
  std::vector<const Tensors*> weights;
  for (const auto& rank : ranks) weights.push_back(&rank->chunks[chunk].tensors);
  for (const auto& [local_name, tensor] : *weights[0]) {
    const std::string name = model_name(*weights[0], local_name, first_layer);
    // The last stage may have a copy of what the first has: tied embeddings.
    if (infos_.contains(name)) continue;
    join(name, weights, local_name, options);
    if (ranks[0]->states.empty()) continue;
    for (const auto& [prefix, states] : ranks[0]->states[chunk]) {
      if (!states.contains(local_name)) continue;
      std::vector<const Tensors*> parts;
      for (const auto& rank : ranks) parts.push_back(&rank->states[chunk].at(prefix));
      join(prefix + name, parts, local_name, options);
    }
  }
}

void TorchFolder::join(const std::string& name, const std::vector<const Tensors*>& ranks,
                       const std::string& local_name, const TorchReadOptions& options) {
  const TorchTensor& first = ranks[0]->at(local_name);
  const auto axis = tensor_parallel_axis(name);
  TensorInfo info = first.info;
  auto& parts = parts_[name];
  if (!axis || ranks.size() == 1) {
    parts.push_back({&first, Dims(info.shape.size(), 0), {Dims(info.shape.size(), 0), info.shape}});
  } else {
    const size_t cut = static_cast<size_t>(*axis);
    PHX_CHECK(info.shape.size() > cut, path_.native(), ": ", name, " is ", text_of(info.shape),
              " where tensor-parallel ranks cut axis ", cut);
    const int64_t local = info.shape[cut];
    // [gate; up]: each rank has a part of both halves.
    const auto fc2 = ranks[0]->find(fc2_of_fc1(local_name));
    const bool halves = fc2 != ranks[0]->end() && fc2->second.info.shape.size() == 2 &&
                        local == 2 * fc2->second.info.shape[1];
    const int64_t num_blocks = halves ? 2 : 1, block = local / num_blocks;
    const auto num_ranks = static_cast<int64_t>(ranks.size());
    info.shape[cut] = local * num_ranks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const auto found = ranks[static_cast<size_t>(rank)]->find(local_name);
      PHX_CHECK(found != ranks[static_cast<size_t>(rank)]->end() &&
                    found->second.info.shape == first.info.shape &&
                    found->second.info.dtype == first.info.dtype,
                path_.native(), ": ", name, " of tensor rank ", rank,
                " is missing or differs from that of rank 0");
      for (int64_t i = 0; i < num_blocks; ++i) {
        Part part{&found->second,
                  Dims(info.shape.size(), 0),
                  {Dims(info.shape.size(), 0), first.info.shape}};
        part.from[cut] = i * block;
        part.box.begin[cut] = (i * num_ranks + rank) * block;
        part.box.size[cut] = block;
        parts.push_back(std::move(part));
      }
    }
  }
  if (options.vocab_size > 0 && has_vocabulary_rows(name) && !info.shape.empty())
    info.shape[0] = std::min(info.shape[0], options.vocab_size);
  infos_[name] = info;
}

void TorchFolder::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = parts_.find(name);
  PHX_CHECK(found != parts_.end(), path_.native(), " has no tensor ", name, " among its ",
            parts_.size());
  check_box(str_cat(path_.native(), ": ", name), infos_.at(name), box, out.size());
  for (const Part& part : found->second) copy_part(*part.tensor, part.from, part.box, box, out);
}

std::string TorchFolder::description() const {
  return str_cat(path_.filename().native(), " (torch, ", ranks_.size() * ranks_[0].size(),
                 " files, ", infos_.size(), " tensors)");
}

}  // namespace phx
