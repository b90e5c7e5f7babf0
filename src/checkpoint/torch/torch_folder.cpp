#include "checkpoint/torch/torch_folder.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/torch/megatron_names.h"
#include "checkpoint/torch/pickle_json.h"
#include "checkpoint/torch/tensor_parts.h"

namespace phx {
namespace {

constexpr std::string_view kRank = "mp_rank_";
constexpr const char* kFile = "model_optim_rng.pt";

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

}  // namespace

TorchFolder::RankFile::RankFile(const Path& path)
    : file(path), archive(file.bytes(), path.native()) {
  for (int i = -1; i < 64; ++i) {
    const std::string key = i < 0 ? "model" : str_cat("model", i);
    const PickleValue* model = archive.root().find(key);
    if (model == nullptr && i >= 0) break;
    if (model == nullptr) continue;
    PHX_CHECK(model->find("language_model") == nullptr, path.native(),
              " is of Megatron's first models ('language_model'), whose names are others"
              "\n  hint: Megatron's tools/checkpoint converts them");
    chunks.push_back(archive.tensors(*model));
    if (i < 0) break;
  }
  PHX_CHECK(!chunks.empty(), path.native(), " has no 'model'");
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
  // Stage by stage for the first chunk of each, then the second: that is the order of the layers.
  const size_t num_chunks = ranks_[0][0]->chunks.size();
  int64_t first_layer = 0;
  for (size_t chunk = 0; chunk < num_chunks; ++chunk) {
    for (size_t stage = 0; stage < ranks_.size(); ++stage) {
      for (const auto& rank : ranks_[stage])
        PHX_CHECK(rank->chunks.size() == num_chunks, rank->archive.where(), " has ",
                  rank->chunks.size(), " parts of the model, the first rank ", num_chunks);
      add_chunk(static_cast<int64_t>(stage), chunk, first_layer, options);
      first_layer += num_layers_of(ranks_[stage][0]->chunks[chunk]);
    }
  }
  if (tied_ && infos_.contains("embedding.word_embeddings.weight")) {
    infos_.erase("output_layer.weight");  // the last stage's copy of the embedding
    parts_.erase("output_layer.weight");
  }
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
  expect("tensor_model_parallel_size", static_cast<int64_t>(ranks_[0].size()));
  expect("expert_model_parallel_size", 1);
  expect("pipeline_model_parallel_size", static_cast<int64_t>(ranks_.size()));
  const auto untied = args.find("untie_embeddings_and_output_weights");
  tied_ = untied != args.end() && untied->is_boolean() && !untied->get<bool>();
}

void TorchFolder::add_chunk(int64_t stage, size_t chunk, int64_t first_layer,
                            const TorchReadOptions& options) {
  std::vector<const Tensors*> ranks;
  for (const auto& rank : ranks_[static_cast<size_t>(stage)]) ranks.push_back(&rank->chunks[chunk]);
  for (const auto& [local_name, tensor] : *ranks[0]) {
    if (local_name.find("_extra_state") != local_name.npos) continue;
    std::string name = local_name;
    if (const auto number = layer_number(name))
      name.replace(number->begin, number->end - number->begin,
                   std::to_string(first_layer + number->layer));
    // The last stage may have a copy of what the first has: tied embeddings.
    if (!infos_.contains(name)) join(name, ranks, local_name, options);
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
