// Faults that other frameworks had with experts on several ranks, each as a case of ours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "phalanx/base/distance.h"
#include "phalanx/verify/parity.h"
#include "support/temp_folder.h"
#include "verify/expert_matrix.h"
#include "verify/masked_documents.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig small_experts() {
  RunConfig config;
  expert_model(config);
  config.model.num_layers = 2;
  config.model.moe.moe_aux_loss_coeff = {0.3};
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  return config;
}

void expect_as_one_rank(const RunConfig& config, int world) {
  const LayoutOutcome many = run_layout(config, world);
  const LayoutOutcome one = run_layout(on_one_rank(config, world), 1);
  for (const std::string& fault : compare(many, one).faults()) ADD_FAILURE() << fault;
}

// Megatron-LM 5916, the common case: with EP > 1 and TP > 1 the tensor-parallel ranks but the first
// left their experts out of the norm, and gradients were clipped too little.
TEST(ExpertKnownFaults, TheNormCountsEveryExpertWhereTensorParallelRanksHaveDifferentOnes) {
  RunConfig config = small_experts();
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.expert_model_parallel_size = 2;
  config.parallel.expert_tensor_parallel_size = 1;
  for (const bool sharded : {false, true}) {
    SCOPED_TRACE(sharded ? "sharded optimizer" : "plain optimizer");
    config.parallel.use_distributed_optimizer = sharded;
    const LayoutOutcome many = run_layout(config, 4, {.steps = 1});
    double squares = 0;
    for (const auto& [name, gradient] : many.steps[0].gradients)
      for (const double g : gradient.values) squares += g * g;
    EXPECT_NEAR(many.steps[0].grad_norm, std::sqrt(squares), 1e-12 * std::sqrt(squares));
    expect_as_one_rank(config, 4);
  }
}

// The rare case: with EP 1 and an ETP other than TP, gradients of experts were summed over the
// dense layers' data-parallel ranks, which hold other columns of them.
TEST(ExpertKnownFaults, ExpertsCutOtherwiseThanDenseLayersAreSummedOverTheirOwnCopies) {
  struct Case {
    int64_t tp, etp;
  };
  for (const Case& c : {Case{1, 2}, Case{2, 1}, Case{2, 4}, Case{4, 2}}) {
    SCOPED_TRACE(::testing::Message() << "TP " << c.tp << ", ETP " << c.etp);
    RunConfig config = small_experts();
    config.parallel.tensor_model_parallel_size = c.tp;
    config.parallel.sequence_parallel = c.tp > 1;
    config.parallel.expert_tensor_parallel_size = c.etp;
    expect_as_one_rank(config, 4);
  }
}

// Megatron-LM 5047 and 3768: with the average over tokens the router's losses counted more or less
// with the number of tensor-parallel ranks, and the global one with that of data-parallel ranks.
TEST(ExpertKnownFaults, LossesOfTheRouterWeighTheSameOnAnyNumberOfRanks) {
  for (const char* type : {"aux_loss", "seq_aux_loss", "global_aux_loss"}) {
    SCOPED_TRACE(type);
    RunConfig config = small_experts();
    config.model.moe.moe_router_load_balancing_type = {type};
    config.model.moe.moe_aux_loss_coeff = {1.0};
    config.model.moe.moe_z_loss_coeff = 1.0;
    config.parallel.expert_tensor_parallel_size = 1;
    config.parallel.expert_model_parallel_size = 4;
    expect_as_one_rank(config, 4);  // DP 4
    config.parallel.tensor_model_parallel_size = 4;
    config.parallel.sequence_parallel = true;
    expect_as_one_rank(config, 4);  // TP 4
  }
}

// Experts on documents whose last tokens have no loss: micro-batches count different numbers of
// tokens. Every loss of the router weighs as much as that of the tokens.
struct MaskedExperts {
  MaskedExperts() {
    write_documents(folder / "documents");
    config.data.mock_data = false;
    config.data.data_path = {(folder / "documents").string()};
    config.data.split = "8,2";
    config.data.eod_mask_loss = true;
    config.model.vocab_size = kDocumentVocabulary;
    config.train.eval_iters = 1;
    config.model.moe.moe_router_load_balancing_type = {"aux_loss", "seq_aux_loss"};
    config.model.moe.moe_aux_loss_coeff = {1.0, 1.0};
    config.model.moe.moe_z_loss_coeff = 1.0;
  }
  TempFolder folder;
  RunConfig config = small_experts();
};

// Megatron-LM 7452, a list of terms that go wrong without a word where kinds of parallelism meet:
// the auxiliary loss was scaled by a number of tokens that was not the micro-batch's, and ranks of
// tensor and sequence parallelism did not agree on which tokens count.
TEST(ExpertKnownFaults, LossesOfTheRouterWeighTheSameWhereTokensAreMasked) {
  MaskedExperts masked;
  RunConfig& config = masked.config;
  for (const LossAverage average : {LossAverage::token, LossAverage::micro_batch}) {
    SCOPED_TRACE(average == LossAverage::token ? "mean of tokens" : "mean of micro-batches");
    config.train.loss_average = average;
    config.parallel = {};
    config.train.global_batch_size = 8;
    config.parallel.expert_model_parallel_size = 4;
    expect_as_one_rank(config, 4);  // DP 4, 2 micro-batches each
    config.train.global_batch_size = 4;
    config.parallel.tensor_model_parallel_size = 2;
    config.parallel.sequence_parallel = true;
    config.parallel.expert_model_parallel_size = 2;
    expect_as_one_rank(config, 4);  // TP 2 x DP 2, 2 micro-batches each
    config.parallel.expert_tensor_parallel_size = 1;
    config.parallel.pipeline_model_parallel_size = 2;
    expect_as_one_rank(config, 4);  // TP 2 x PP 2, 4 micro-batches
  }
}

// The gradients of a step with micro-batch `first` .. alone, `count` of them, from the same
// weights.
GlobalTensors gradients_of_micro_batches(RunConfig config, const Sources& sources, int64_t first,
                                         int64_t count, std::vector<int64_t>& counted) {
  config.train.global_batch_size = count * config.train.micro_batch_size;
  Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
  Session session(config, sources, runtime.device());
  session.load_batch(first * config.train.micro_batch_size);
  counted.assign(session.train_batches.tokens().begin(), session.train_batches.tokens().end());
  session.step.run(session.train_batches, {.lr = 1e-3});
  GlobalTensors gradients;
  for (const Parameter* parameter : session.store.parameters())
    gradients[parameter->name()].values = to_values(parameter->gradient());
  return gradients;
}

// The same without layouts, of which all might make the same mistake: micro-batch k counts with
// n_k / N, or with 1 / M in the average over micro-batches; each alone counts with 1.
TEST(ExpertKnownFaults, LossesOfTheRouterCountWithTheMicroBatchsShareOfTokens) {
  const MaskedExperts masked;
  constexpr int64_t kMicroBatches = 4;
  for (const LossAverage average : {LossAverage::token, LossAverage::micro_batch}) {
    SCOPED_TRACE(average == LossAverage::token ? "mean of tokens" : "mean of micro-batches");
    RunConfig config = masked.config;
    config.train.loss_average = average;
    const Sources sources(config);
    std::vector<int64_t> counts, own;
    const GlobalTensors all = gradients_of_micro_batches(config, sources, 0, kMicroBatches, counts);
    ASSERT_NE(std::ranges::min(counts), std::ranges::max(counts)) << "nothing is to be told apart";
    const double tokens = double(std::reduce(counts.begin(), counts.end()));
    GlobalTensors sums;
    for (int64_t k = 0; k < kMicroBatches; ++k) {
      const double share = average == LossAverage::token ? double(counts[size_t(k)]) / tokens
                                                         : 1.0 / double(kMicroBatches);
      for (const auto& [name, gradient] : gradients_of_micro_batches(config, sources, k, 1, own)) {
        std::vector<double>& sum = sums[name].values;
        sum.resize(gradient.values.size());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += share * gradient.values[i];
      }
    }
    for (const auto& [name, sum] : sums)
      EXPECT_LE(relative_error(all.at(name).values, sum.values), 1e-12) << name;
  }
}

// Megatron-LM 5798: the loss of each sequence counted less in larger micro-batches.
TEST(ExpertKnownFaults, TheLossOfASequenceWeighsTheSameInAnyMicroBatch) {
  RunConfig config = small_experts();
  config.model.moe.moe_router_load_balancing_type = {"seq_aux_loss"};
  config.model.moe.moe_aux_loss_coeff = {1.0};
  config.model.moe.moe_z_loss_coeff = 1.0;
  const LayoutOutcome four = run_layout(config, 1);
  for (const int64_t samples : {2, 4}) {
    config.train.micro_batch_size = samples;
    for (const std::string& fault : compare(run_layout(config, 1), four).faults())
      ADD_FAILURE() << samples << " samples a micro-batch: " << fault;
  }
}

TEST(ExpertKnownFaults, UnevenRowsReachTheirExpertsAndComeBack) {
  struct Case {
    int64_t ep, etp;
  };
  for (const Case& c : {Case{4, 1}, Case{2, 2}}) {
    SCOPED_TRACE(::testing::Message() << "EP " << c.ep << ", ETP " << c.etp);
    RunConfig config = small_experts();
    config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
    config.parallel.expert_model_parallel_size = c.ep;
    config.parallel.expert_tensor_parallel_size = c.etp;
    expect_as_one_rank(config, 4);
  }
}

TEST(ExpertKnownFaults, TheSharedExpertIsAddedOnce) {
  RunConfig config = small_experts();
  config.model.moe.moe_shared_expert_intermediate_size = 12;
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.expert_model_parallel_size = 2;
  expect_as_one_rank(config, 4);
}

TEST(ExpertKnownFaults, ACapacityIsOneOfTheMicroBatchNotOfARank) {
  RunConfig config = small_experts();
  config.model.moe.moe_expert_capacity_factor = 1.0;
  config.parallel.tensor_model_parallel_size = 4;
  config.parallel.sequence_parallel = true;
  config.parallel.expert_tensor_parallel_size = 1;
  for (const TokenDropPolicy policy : {TokenDropPolicy::probs, TokenDropPolicy::position}) {
    config.model.moe.moe_token_drop_policy = policy;
    expect_as_one_rank(config, 4);
  }
}

TEST(ExpertKnownFaults, TheBiasOfExpertsIsTheSameOnAllRanks) {
  RunConfig config = small_experts();
  config.model.moe.moe_router_score_function = RouterScoreFunction::sigmoid;
  biased(config.model.moe);
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.expert_model_parallel_size = 2;
  config.parallel.expert_tensor_parallel_size = 1;
  expect_as_one_rank(config, 4);
}

}  // namespace
}  // namespace phx
