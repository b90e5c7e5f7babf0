#include "phalanx/verify/shrink_layers.h"

#include <algorithm>
#include <set>

#include "phalanx/base/error.h"

namespace phx {

namespace {

using Sizes = std::vector<int>;  // layers of the pieces, in the order in which a token visits them

Sizes piece_sizes(const Placement& placement) {
  Sizes sizes;
  for (int chunk = 0; chunk < placement.chunks; ++chunk)
    for (int rank = 0; rank < placement.stages; ++rank)
      sizes.push_back(placement.at(rank, chunk).num_layers);
  return sizes;
}

// Of pieces of different sizes the smaller ones get 1 layer and the larger ones 2; empty ones stay.
int small_size(int size, const Sizes& all) {
  int least = 0;
  for (const int other : all)
    if (other > 0 && (least == 0 || other < least)) least = other;
  return size == 0 ? 0 : size == least ? 1 : 2;
}

// `count` of the sizes: the first, the last, and from between first of all what is not there yet.
Sizes pick(const Sizes& all, size_t count) {
  std::set<size_t> picked = {0, all.size() - 1};
  std::set<int> seen = {all.front(), all.back()};
  for (size_t i = 1; i + 1 < all.size() && picked.size() < count; ++i)
    if (seen.insert(all[i]).second) picked.insert(i);
  for (size_t i = 1; picked.size() < count; ++i) picked.insert(i);
  Sizes sizes;
  for (const size_t i : picked) sizes.push_back(all[i]);
  return sizes;
}

// Layers of multi-token prediction stand beside the loss, or in the piece before it.
struct Ahead {
  int layers = 0;
  bool apart = false;
};

std::string layout_text(const Sizes& sizes, const Ahead& ahead) {
  std::string text = "E";
  const size_t with_ahead = sizes.size() - (ahead.apart ? 2 : 1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i == 0 ? "" : "|") + std::string(size_t(sizes[i]), 't');
    if (i == with_ahead) text += std::string(size_t(ahead.layers), 'm');
  }
  return text + "L";
}

int sum(const Sizes& sizes) {
  int total = 0;
  for (const int size : sizes) total += size;
  return total;
}

// Layers of the largest piece.
int split(RunConfig& config, const Placement& before, int stages) {
  ParallelConfig& ranks = config.parallel;
  int64_t& layers = config.model.num_layers;
  config.model.mtp_num_layers = std::min<int64_t>(config.model.mtp_num_layers, 2);
  const Sizes all = piece_sizes(before);
  const int chunks = std::min(before.chunks, 2), pieces = stages * chunks;
  if (ranks.num_virtual_stages_per_pipeline_rank)
    ranks.num_virtual_stages_per_pipeline_rank = chunks;

  if (!ranks.pipeline_model_parallel_layout.empty()) {
    Sizes sizes = pick(all, size_t(pieces));
    for (int& size : sizes) size = small_size(size, all);
    if (sum(sizes) == 0) sizes.front() = 1;  // all layers were in pieces that were not picked
    // The rank of the piece before the loss is neither the first nor the last of three.
    const bool apart = stages > 2 && before.mtp_stage() && *before.mtp_stage() != before.stages - 1;
    ranks.pipeline_model_parallel_layout =
        layout_text(sizes, {.layers = int(config.model.mtp_num_layers), .apart = apart});
    layers = sum(sizes);
    return *std::ranges::max_element(sizes);
  }
  auto &first = ranks.decoder_first_pipeline_num_layers,
       &last = ranks.decoder_last_pipeline_num_layers;
  if (first || last) {
    const int others = stages - (first ? 1 : 0) - (last ? 1 : 0);
    const int between = small_size(all[first ? 1 : 0], all);
    layers = others * between * chunks;
    if (first) layers += *(first = small_size(all.front(), all) * chunks);
    if (last) layers += *(last = small_size(all.back(), all) * chunks);
    return 2;
  }
  // Even pieces, of which the embedding and the loss may take a layer.
  const int extra = (ranks.account_for_embedding_in_pipeline_split ? 1 : 0) +
                    (ranks.account_for_loss_in_pipeline_split ? 1 : 0);
  const int even = int(config.model.num_layers + extra) / int(all.size());
  int small = std::min(even, std::max(1, 4 / pieces));
  if (extra > 0) small = std::max(small, std::min(even, 2));
  while (small * pieces <= extra) ++small;
  layers = small * pieces - extra;
  if (ranks.num_layers_per_virtual_pipeline_stage)
    ranks.num_layers_per_virtual_pipeline_stage = small;
  return small;
}

// Layers that were different still are, if there are several.
void shrink_pattern(std::optional<FrequencyPattern>& pattern, int64_t layers) {
  if (!pattern) return;
  if (!pattern->is_list()) {
    if (pattern->every > layers)
      pattern = FrequencyPattern::every_nth(std::max<int64_t>(2, layers / 2));
    return;
  }
  const std::vector<int64_t>& all = pattern->list;
  std::vector<int64_t> picked;
  for (int64_t i = 0; i < layers; ++i)
    picked.push_back(all[size_t(i) * all.size() / size_t(layers)]);
  for (const int64_t value : all)
    if (layers > 1 && std::ranges::find(picked, value) == picked.end()) picked.back() = value;
  pattern = FrequencyPattern::of(std::move(picked));
}

}  // namespace

void shrink_layers(RunConfig& config, const Placement& before, int stages) {
  const Sizes all = piece_sizes(before);
  const int largest_before = *std::ranges::max_element(all);
  const int largest = split(config, before, stages);
  const int64_t layers = config.model.num_layers;
  shrink_pattern(config.model.window_attn_skip_freq, layers);
  shrink_pattern(config.model.no_rope_freq, layers);
  shrink_pattern(config.model.moe.moe_layer_freq, layers);
  auto& recomputed = config.train.recompute_num_layers;
  if (!recomputed) return;
  const bool everything = *recomputed >= largest_before;
  recomputed = std::clamp<int64_t>(everything ? largest : *recomputed, 1,
                                   everything ? largest : std::max(1, largest - 1));
}

}  // namespace phx
