// The layouts that are proved against one rank: a table of options with their settings, and rows in
// which every two settings that go together stand together at least once.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "phalanx/train/layout.h"
#include "verify/matrix_models.h"
#include "verify/pairwise.h"

namespace phx::testing {

// What the settings of a layout write to.
struct Draft : RunConfig {
  int64_t dp = 1, micro_batches = 1;  // the latter a data-parallel rank and step
};

struct Setting {
  std::string name;
  std::function<void(Draft&)> apply;
};

struct MatrixOption {
  std::string name;
  std::vector<Setting> settings;
};

inline Setting tensor(const char* name, int64_t size, bool sequence = false) {
  return {name, [=](Draft& draft) {
            draft.parallel.tensor_model_parallel_size = size;
            draft.parallel.sequence_parallel = sequence;
          }};
}

// `more` adds what else the flags of the pipeline say.
inline Setting pipeline(const char* name, int64_t stages, int64_t layers,
                        std::function<void(ParallelConfig&)> more = {}) {
  return {name, [=](Draft& draft) {
            draft.parallel.pipeline_model_parallel_size = stages;
            draft.model.num_layers = layers;
            if (more) more(draft.parallel);
          }};
}

struct DataFlags {
  bool zero = false, overlap_reduce = false, overlap_gather = false;
};

inline Setting data(const char* name, int64_t ranks, const DataFlags& flags = {}) {
  return {name, [=](Draft& draft) {
            draft.dp = ranks;
            draft.parallel.use_distributed_optimizer = flags.zero;
            draft.parallel.overlap_grad_reduce = flags.overlap_reduce;
            draft.parallel.overlap_param_gather = flags.overlap_gather;
            if (flags.overlap_reduce) draft.parallel.ddp_bucket_size = 1500;  // several a rank
          }};
}

inline Setting batch(const char* name, int64_t samples, int64_t micro_batches) {
  return {name, [=](Draft& draft) {
            draft.train.micro_batch_size = samples;
            draft.micro_batches = micro_batches;
          }};
}

inline Setting full_recompute(const char* name, RecomputeMethod method, int64_t layers) {
  return {name, [=](Draft& draft) {
            draft.train.recompute_granularity = RecomputeGranularity::full;
            draft.train.recompute_method = method;
            draft.train.recompute_num_layers = layers;
          }};
}

// The same with what attention found kept, and the MLP in `pieces` pieces of the sequence.
inline Setting tiled_recompute(const char* name, int64_t pieces) {
  const Setting full = full_recompute(name, RecomputeMethod::uniform, 1);
  return {name, [=](Draft& draft) {
            full.apply(draft);
            draft.train.recompute_keep_attention = true;
            draft.train.mlp_chunks_for_training = pieces;
          }};
}

inline Setting selective_recompute(const char* name, std::vector<std::string> modules) {
  return {name, [=](Draft& draft) {
            draft.train.recompute_granularity = RecomputeGranularity::selective;
            draft.train.recompute_modules = modules;
          }};
}

inline std::vector<MatrixOption> matrix_options() {
  using Ranks = ParallelConfig;
  const auto zero_bubble = [](Ranks& r) { r.pipeline_schedule = "zb-h1"; };
  const auto nothing = [](Draft&) {};
  const auto chunks = [](int64_t group_size) {  // 0: the default, one micro-batch a stage
    return [group_size](Ranks& r) {
      r.num_virtual_stages_per_pipeline_rank = 2;
      if (group_size > 0) r.microbatch_group_size_per_virtual_pipeline_stage = group_size;
    };
  };
  const auto layout = [](const char* text) {
    return [text](Ranks& r) { r.pipeline_model_parallel_layout = text; };
  };
  const auto model = [](const char* name, void (*shape)(RunConfig&)) {
    return Setting{name, [shape](Draft& draft) { shape(draft); }};
  };
  const auto dropout = [](double p) {
    return [p](Draft& draft) { draft.model.attention_dropout = draft.model.hidden_dropout = p; };
  };
  return {
      {"model",
       {model("GPT-2", gpt2_like), model("Llama", llama_like), model("Gemma-2", gemma2_like),
        model("Qwen3", qwen3_like), model("MQA", mqa_like)}},
      {"tensor",
       {tensor("TP1", 1), tensor("TP2", 2), tensor("TP2 SP", 2, true), tensor("TP4", 4),
        tensor("TP4 SP", 4, true)}},
      {"pipeline",
       {pipeline("PP1", 1, 2), pipeline("PP2", 2, 4), pipeline("PP2 zb-h1", 2, 4, zero_bubble),
        pipeline("PP2 VPP2", 2, 4, chunks(0)), pipeline("PP2 VPP2 groups of 4", 2, 4, chunks(4)),
        pipeline("PP2 1 layer a chunk, no p2p overlap", 2, 6,
                 [](Ranks& r) {
                   r.num_layers_per_virtual_pipeline_stage = 1;
                   r.overlap_p2p_communication = false;
                 }),
        pipeline("PP2 first 1", 2, 3, [](Ranks& r) { r.decoder_first_pipeline_num_layers = 1; }),
        pipeline("PP2 loss counts", 2, 3,
                 [](Ranks& r) { r.account_for_loss_in_pipeline_split = true; }),
        pipeline("PP2 E|tt|t|L", 2, 3, layout("E|tt|t|L")), pipeline("PP4", 4, 4),
        pipeline("PP4 zb-h1", 4, 4, zero_bubble), pipeline("PP4 VPP2", 4, 8, chunks(0)),
        pipeline("PP4 VPP2 groups of 5", 4, 8, chunks(5)),
        pipeline("PP4 first 1 last 1", 4, 6,
                 [](Ranks& r) {
                   r.decoder_first_pipeline_num_layers = 1;
                   r.decoder_last_pipeline_num_layers = 1;
                 }),
        pipeline("PP4 embedding and loss count", 4, 6,
                 [](Ranks& r) {
                   r.account_for_embedding_in_pipeline_split = true;
                   r.account_for_loss_in_pipeline_split = true;
                 }),
        pipeline("PP4 Et|tt||L", 4, 3, layout("Et|tt||L"))}},
      {"data",
       {data("DP1", 1), data("DP2", 2), data("DP2 overlap", 2, {.overlap_reduce = true}),
        data("DP2 ZeRO-1", 2, {.zero = true}),
        data("DP2 ZeRO-1 overlap", 2, {.zero = true, .overlap_reduce = true}),
        data("DP2 ZeRO-1 overlap both", 2,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true}),
        data("DP4", 4), data("DP4 ZeRO-1", 4, {.zero = true}),
        data("DP4 ZeRO-1 overlap both", 4,
             {.zero = true, .overlap_reduce = true, .overlap_gather = true})}},
      {"batch",
       {batch("1 x 1", 1, 1), batch("4 x 1", 1, 4), batch("5 x 1", 1, 5), batch("2 x 2", 2, 2)}},
      {"recompute",
       {{"none", nothing},
        full_recompute("uniform 2", RecomputeMethod::uniform, 2),
        full_recompute("block 1", RecomputeMethod::block, 1),
        selective_recompute("core_attn", {"core_attn"}),
        selective_recompute("layernorm", {"layernorm"}),
        selective_recompute("mlp", {"mlp"}),
        selective_recompute("activation", {"activation"}),
        selective_recompute("core_attn layernorm activation",
                            {"core_attn", "layernorm", "activation"})}},
      {"dropout", {{"dropout", dropout(0.1)}, {"no dropout", dropout(0)}}},
      {"embedding",
       {{"tied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = false; }},
        {"untied", [](Draft& d) { d.model.untie_embeddings_and_output_weights = true; }}}},
      {"order",
       {{"tp-dp-pp", nothing},
        {"tp-pp-dp", [](Draft& d) { d.parallel.use_tp_pp_dp_mapping = true; }}}},
  };
}

struct MatrixLayout {
  std::vector<std::string> settings;  // their names, one an option
  RunConfig config;
  int world = 1;
  std::string name() const {
    std::string text;
    for (const std::string& setting : settings) text += (text.empty() ? "" : ", ") + setting;
    return text;
  }
};

// `start` is what all layouts have in common.
using DraftStart = std::function<void(Draft&)>;
inline MatrixLayout matrix_layout(const std::vector<MatrixOption>& options, const Row& row,
                                  const DraftStart& start = {}) {
  MatrixLayout layout;
  Draft draft;
  if (start) start(draft);
  for (size_t i = 0; i < options.size(); ++i) {
    const Setting& setting = options[i].settings[size_t(row[i])];
    layout.settings.push_back(setting.name);
    setting.apply(draft);
  }
  draft.train.global_batch_size = draft.train.micro_batch_size * draft.micro_batches * draft.dp;
  layout.world = int(model_ranks(draft.parallel) * draft.dp);
  layout.config = draft;
  return layout;
}

constexpr int kMostMatrixRanks = 16;

inline std::vector<MatrixLayout> make_matrix(const std::vector<MatrixOption>& options,
                                             const DraftStart& start = {}) {
  std::vector<int> counts;
  for (const MatrixOption& option : options) counts.push_back(int(option.settings.size()));
  const auto allowed = [&](const Row& row) {
    const MatrixLayout layout = matrix_layout(options, row, start);
    return layout.world > 1 && layout.world <= kMostMatrixRanks &&
           layout_problems(layout.config.layout(), layout.world).empty();
  };
  std::vector<MatrixLayout> layouts;
  for (const Row& row : pairwise_rows(counts, allowed))
    layouts.push_back(matrix_layout(options, row, start));
  return layouts;
}

inline std::set<std::string> names_there_twice(const std::vector<MatrixLayout>& layouts) {
  std::set<std::string> names, twice;
  for (const MatrixLayout& layout : layouts)
    if (!names.insert(layout.name()).second) twice.insert(layout.name());
  return twice;
}

// "PP2 VPP2 with 1 x 1": settings of two options that no layout has together.
inline std::set<std::string> pairs_without_layout(const std::vector<MatrixOption>& options,
                                                  const std::vector<MatrixLayout>& layouts) {
  std::set<std::string> lacking;
  for (size_t i = 0; i < options.size(); ++i)
    for (size_t j = i + 1; j < options.size(); ++j)
      for (const Setting& a : options[i].settings)
        for (const Setting& b : options[j].settings)
          if (std::ranges::none_of(layouts, [&](const MatrixLayout& layout) {
                return layout.settings[i] == a.name && layout.settings[j] == b.name;
              }))
            lacking.insert(a.name + " with " + b.name);
  return lacking;
}

inline const std::vector<MatrixLayout>& parity_matrix() {
  static const std::vector<MatrixLayout> layouts = make_matrix(matrix_options());  // takes a moment
  return layouts;
}

}  // namespace phx::testing
