// One-rank runs that layouts are compared with. Layouts that differ in nothing but their ranks
// share one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/verify/layout_run.h"
#include "verify/parity_matrix.h"

namespace phx::testing {

class ReferenceRuns {
 public:
  explicit ReferenceRuns(const LayoutRun& run) : run_(run) {}

  const Sources& sources(const RunConfig& config) {
    auto& sources =
        sources_[{*config.model.vocab_size, config.data.dataloader_inter_document_masking}];
    if (!sources) sources = std::make_unique<Sources>(config);
    return *sources;
  }

  // `model` names what the layout's settings make of the model; by default the first setting does.
  const LayoutOutcome& of(const MatrixLayout& layout, std::string model = "") {
    if (model.empty()) model = layout.settings.front();
    const RunConfig one = on_one_rank(layout.config, layout.world);
    auto& outcome = outcomes_[key(model, one)];
    if (!outcome) {
      outcome = std::make_unique<LayoutOutcome>(run_layout(one, sources(one), 1, run_));
    }
    return *outcome;
  }

  size_t size() const { return outcomes_.size(); }

 private:
  // All that on_one_rank leaves and that layouts of the matrix differ in.
  static std::string key(const std::string& model, const RunConfig& one) {
    return str_cat(model, ", ", one.model.num_layers, " layers, ", *one.train.global_batch_size,
                   " samples by ", one.train.micro_batch_size, ", dropout ",
                   one.model.hidden_dropout, ", untied ",
                   one.model.untie_embeddings_and_output_weights);
  }

  LayoutRun run_;
  // By vocabulary, and whether documents are kept apart.
  std::map<std::pair<int64_t, bool>, std::unique_ptr<Sources>> sources_;
  std::map<std::string, std::unique_ptr<LayoutOutcome>> outcomes_;
};

}  // namespace phx::testing
