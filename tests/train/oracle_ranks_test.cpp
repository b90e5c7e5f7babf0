// Models with experts on several ranks against PyTorch on one: what one rank computes wrong, all
// layouts might compute wrong alike, and a comparison of layouts would not tell.
#include <gtest/gtest.h>

#include <algorithm>

#include "phalanx/base/distance.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/session.h"
#include "phalanx/train/train_fields.h"
#include "phalanx/transformer/transformer_fields.h"
#include "train/oracle.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int kRanks = 4, kSteps = 20;
const char* const kFamilies[] = {"mixtral", "qwen3_moe", "olmoe", "deepseek_v3"};

// The model of a file in fp64, a sample a rank and micro-batch.
RunConfig run_of(const SafetensorsFile& file) {
  RunConfig config;
  OptionSet options;
  options.add("Model", config.model);
  options.add("Run", config.train);
  options.add("Optimizer", config.optim);
  std::vector<std::string> args = words(file.metadata().at("flags"));
  for (const std::string& word : words(file.metadata().at("optimizer_flags"))) args.push_back(word);
  const ParseReport report = options.parse(args);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  config.train.fp64 = true;
  config.train.micro_batch_size = 1;
  config.data.mock_data = true;
  config.parallel.expert_model_parallel_size = 2;
  return config;
}

// f(session) on every rank, with the file's weights.
void on_ranks(const SafetensorsFile& file, const RunConfig& config,
              const std::function<void(Session&)>& f) {
  const Sources sources = Sources::made_up(config);
  const Layout layout = make_layout(config.layout(), kRanks);
  run_thread_ranks(kRanks, {}, [&](World& world) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
    const Mesh mesh(world, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    for (const Parameter* parameter : session.store.parameters())
      set_parameter(*parameter, doubles(file.at("weight." + parameter->name())));
    f(session);
  });
}

void expect_curve_matches(const SafetensorsFile& file, const RunConfig& config) {
  const int64_t b = *config.train.global_batch_size, s = config.model.seq_length;
  const auto tokens = values<int64_t>(file.at("train_tokens"));
  const auto labels = values<int64_t>(file.at("train_labels"));
  std::vector<double> losses, norms;
  on_ranks(file, config, [&](Session& session) {
    const Device device = session.store.weights().device();
    for (int64_t i = 0; i < kSteps; ++i) {
      const int64_t sample = i * b + session.mesh.dp_rank();
      const auto mine = std::span(labels).subspan(size_t(sample * s), size_t(s));
      const Batch batch{
          .tensors = {{"tokens", tokens_of(std::span(tokens).subspan(size_t(sample * s), size_t(s)),
                                           1, s, device)},
                      {"labels", tokens_of(mine, 1, s, device)}}};
      const int64_t n = std::ranges::count_if(mine, [](int64_t x) { return x >= 0; });
      session.step.run(std::span(&batch, 1), std::span(&n, 1), /*first_sample=*/0,
                       {.iteration = i + 1,
                        .update = i + 1,
                        .lr = *config.optim.lr,
                        .weight_decay = config.optim.weight_decay});
      const StepResults results = session.step.collect();
      if (session.mesh.rank() != 0) continue;
      losses.push_back(results.loss_sum / results.tokens);
      norms.push_back(results.grad_norm);
    }
  });
  std::vector<double> want_losses = doubles(file.at("losses64"));
  std::vector<double> want_norms = doubles(file.at("grad_norms64"));
  want_losses.resize(kSteps);
  want_norms.resize(kSteps);
  EXPECT_LE(relative_error(losses, want_losses), 1e-9);
  EXPECT_LE(relative_error(norms, want_norms), 1e-8);
}

TEST(OracleRanks, TwentyAdamWStepsOnEp2Tp2FollowPyTorchsCurve) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const SafetensorsFile file(oracle_path(family));
    RunConfig config = run_of(file);
    config.parallel.tensor_model_parallel_size = 2;
    config.parallel.sequence_parallel = true;
    expect_curve_matches(file, config);  // ETP 2, all-gather
    config.parallel.expert_tensor_parallel_size = 1;
    config.parallel.use_distributed_optimizer = true;
    config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
    expect_curve_matches(file, config);
  }
}

// A rank's own sample with experts on all ranks; logits are not to be had where TP cuts them.
TEST(OracleRanks, LogitsOnEp2Etp2ArePyTorchs) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const SafetensorsFile file(oracle_path(family));
    RunConfig config = run_of(file);
    const int64_t b = *config.train.global_batch_size, s = config.model.seq_length;
    const auto tokens = values<int64_t>(file.at("tokens"));
    const std::vector<double> all = doubles(file.at("logits64"));  // [b, s, v]
    config.train.global_batch_size = kRanks;
    config.parallel.expert_tensor_parallel_size = 2;
    on_ranks(file, config, [&](Session& session) {
      const auto sample = size_t(session.mesh.rank() % b);
      const Tensor own = tokens_of(std::span(tokens).subspan(sample * size_t(s), size_t(s)), 1, s,
                                   session.store.weights().device());
      const std::vector<double> logits =
          to_values(session.model().generator()->logits(own, nullptr, /*last_only=*/false));
      const std::span want = std::span(all).subspan(sample * logits.size(), logits.size());
      EXPECT_LE(relative_error(logits, want), 1e-10) << "rank " << session.mesh.rank();
    });
  }
}

}  // namespace
}  // namespace phx
