// Exact resume over the layouts of the matrix: a run that was stopped, saved and resumed ends with
// the bytes of one that was not. By default on a share of the layouts with a precision each; with
// PHX_ALL_LAYOUTS=1 on every layout in every precision.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "phalanx/verify/resume.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"
#include "verify/ahead_matrix.h"
#include "verify/attention_matrix.h"
#include "verify/context_matrix.h"
#include "verify/expert_matrix.h"
#include "verify/matrix_sample.h"
#include "verify/parity_matrix.h"
#include "verify/reference_runs.h"
#include "verify/shard_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kIterations = 6;

// What state there is beside the weights.
std::vector<Setting> precisions() {
  return {
      {"fp32", [](Draft& draft) { draft.train.fp64 = false; }},
      {"bf16 with masters",
       [](Draft& draft) {
         draft.train.fp64 = false;
         draft.train.bf16 = true;
       }},
      {"fp16 with a loss scale",
       [](Draft& draft) {
         draft.train.fp64 = false;
         draft.train.fp16 = true;
         // Overflows at first, and grows again before and after the stop.
         draft.optim.initial_loss_scale = 0x1p19;
         draft.optim.hysteresis = 1;
         draft.optim.loss_scale_window = 2;
       }},
      {"bf16 with 16-bit moments, a part of them in host memory",
       [](Draft& draft) {
         draft.train.fp64 = false;
         draft.train.bf16 = true;
         draft.optim.use_precision_aware_optimizer = draft.optim.optimizer_cpu_offload = true;
         draft.optim.exp_avg_dtype = draft.optim.exp_avg_sq_dtype = StateDType::bf16;
         draft.optim.optimizer_offload_fraction = 0.6;
       }},
  };
}

// A schedule that moves, and evaluations, which use up samples, too.
void set_schedule(RunConfig& config) {
  config.optim.lr_decay_style = "cosine";
  config.optim.lr_warmup_iters = 2;
  config.optim.start_weight_decay = 0.01;
  config.optim.end_weight_decay = 0.1;
  config.optim.weight_decay_incr_style = WeightDecayStyle::linear;
  config.train.eval_interval = 2;
  config.train.eval_iters = 1;
}

struct Totals {
  int64_t proofs = 0, tensors = 0, skipped = 0, iterations = 0;
};

void expect_exact_resume(const MatrixLayout& layout, const Setting& precision,
                         const Sources& sources, Totals& totals) {
  Draft draft;
  static_cast<RunConfig&>(draft) = layout.config;
  precision.apply(draft);
  set_schedule(draft);
  draft.train.async_save = totals.proofs % 2 == 1;
  const TempFolder folder;
  const ResumeProof proof = prove_resume(draft, sources, layout.world, kIterations, folder.path());
  for (const std::string& fault : proof.faults)
    ADD_FAILURE() << layout.name() << ", " << precision.name << ": " << fault;
  EXPECT_EQ(proof.losses.size(), size_t(kIterations));
  EXPECT_GT(proof.tensors, 20) << "weights and moments of every layer";
  ++totals.proofs;
  totals.tensors += proof.tensors;
  totals.skipped += proof.skipped_iterations;
  totals.iterations += kIterations;
}

TEST(ResumeMatrix, AStopInTheMiddleChangesNoByte) {
  const std::vector<Setting> kinds = precisions();
  const bool all = all_layouts_wanted();
  const std::vector<MatrixLayout> layouts =
      all ? parity_matrix() : every_setting_once(parity_matrix());
  ReferenceRuns references({});
  std::vector<Totals> totals(kinds.size());
  for (size_t i = 0; i < layouts.size(); ++i)
    for (size_t k = 0; k < kinds.size(); ++k)
      if (all || k == i % kinds.size())
        expect_exact_resume(layouts[i], kinds[k], references.sources(layouts[i].config), totals[k]);
  for (size_t k = 0; k < kinds.size(); ++k) {
    EXPECT_GT(totals[k].proofs, 2);
    std::cout << fmt::format("{}: {} layouts, {} tensors, {} of {} iterations skipped\n",
                             kinds[k].name, totals[k].proofs, totals[k].tensors, totals[k].skipped,
                             totals[k].iterations);
  }
  EXPECT_GT(totals[2].skipped, 0) << "the loss scale should have been too large";
  EXPECT_LT(totals[2].skipped, totals[2].iterations / 2) << "and should have come down";
}

void expect_exact_resume_of(const std::vector<MatrixLayout>& matrix) {
  const std::vector<Setting> kinds = precisions();
  const std::vector<MatrixLayout> layouts =
      all_layouts_wanted() ? matrix : every_setting_once(matrix);
  ReferenceRuns references({});
  std::vector<Totals> totals(kinds.size());
  for (size_t i = 0; i < layouts.size(); ++i)
    for (size_t k = 0; k < kinds.size(); ++k)
      if (all_layouts_wanted() || k == i % kinds.size())
        expect_exact_resume(layouts[i], kinds[k], references.sources(layouts[i].config), totals[k]);
  for (const Totals& total : totals) EXPECT_GT(total.proofs, 0);
}

TEST(ResumeMatrix, NorDoesItWithExperts) { expect_exact_resume_of(expert_matrix()); }

TEST(ResumeMatrix, NorDoesItWithTokensAhead) { expect_exact_resume_of(ahead_matrix()); }

TEST(ResumeMatrix, NorDoesItWithSharding) { expect_exact_resume_of(shard_matrix()); }

TEST(ResumeMatrix, NorDoesItWhereRanksShareSequences) { expect_exact_resume_of(context_matrix()); }

TEST(ResumeMatrix, NorDoesItWithOtherAttention) { expect_exact_resume_of(attention_matrix()); }

TEST(ResumeProof, SeesStateThatWasNotTakenOver) {
  RunConfig config = tiny_run();
  config.train.bf16 = true;
  const Sources sources(config);
  const TempFolder with, without;
  EXPECT_EQ(prove_resume(config, sources, 1, 4, with.path()).faults, std::vector<std::string>{});
  config.train.load_optim = false;
  const std::vector<std::string> faults =
      prove_resume(config, sources, 1, 4, without.path()).faults;
  ASSERT_FALSE(faults.empty());
  EXPECT_THAT(faults.front(), HasSubstr("metrics: {"));
  EXPECT_THAT(faults, Contains("decoder.layers.0.mlp.linear_fc1.weight differs"));
  EXPECT_THAT(faults, Contains("optimizer.exp_avg.decoder.layers.0.mlp.linear_fc1.weight differs"));
}

}  // namespace
}  // namespace phx
