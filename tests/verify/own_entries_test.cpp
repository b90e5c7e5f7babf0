// Datasets, losses, pipeline schedules and optimizers that a program brings in its catalogue train
// on every layout as on one rank.
#include <gtest/gtest.h>

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/elementwise.h"
#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

// Tokens count up from the sample's number.
class Counting : public SampleSource {
 public:
  Counting(int64_t s, int64_t vocab) : s_(s), vocab_(vocab) {}
  void sample(int64_t index, Sample& out) const override {
    out.tokens.resize(size_t(s_));
    out.labels.resize(size_t(s_));
    for (int64_t i = 0; i < s_; ++i) {
      out.tokens[size_t(i)] = int32_t((index + i) % vocab_);
      out.labels[size_t(i)] = int32_t((index + i + 1) % vocab_);
    }
  }
  std::string description() const override { return "counting"; }

 private:
  int64_t s_, vocab_;
};

struct CountingOptions {
  int64_t most = 50;
  template <class Field>
  void each(Field&& field) {
    field("count-to", most, "largest token", Positive{});
  }
};

Dataset counting() {
  return {.name = "counting",
          .help = "an example",
          .open =
              [](const DatasetCall& call, const OwnOptions& options) {
                const auto source = std::make_shared<Counting>(
                    call.request.sample.seq_length,
                    std::min(call.vocab_size, options.get<CountingOptions>().most));
                return DatasetsBySplit{source, source, nullptr};
              },
          .options = OwnOptions::of<CountingOptions>()};
}

// Twice the cross-entropy: loss and gradients are twice as large.
Loss twice() {
  return {
      .name = "twice", .help = "an example", .sum = [](const LossCall& call, const OwnOptions&) {
        Tensor scale = call.grad_scale;
        if (scale.defined()) {
          scale = empty_like(call.grad_scale);
          kernels::scale(call.grad_scale, 2.0, {scale});
        }
        const Tensor once = lm_loss(call.hidden, call.weight, call.labels, call.loss_mask, scale,
                                    call.head)
                                .loss_sum;  // [1]
        Tensor sum = empty_like(once);
        kernels::scale(once, 2.0, {sum});
        return with_backward(sum, {once},
                             [](const Tensor& dy, GradOut& grad) { grad.pass(0, dy); });
      }};
}

// GPipe: all forwards, then all backwards.
ScheduleKind gpipe() {
  return {.name = "gpipe",
          .help = "an example",
          .make =
              [](const ScheduleConfig& config, const OwnOptions&) {
                return schedule_of(config, "GPipe", [&](int) {
                  std::vector<ScheduleStep> steps;
                  for (int m = 0; m < config.micro_batches; ++m)
                    steps.push_back({StepKind::forward, m, 0});
                  for (int m = config.micro_batches - 1; m >= 0; --m)
                    steps.push_back({StepKind::backward, m, 0});
                  return steps;
                });
              },
          .several_chunks = false};
}

RunConfig own_run() {
  RunConfig config = tiny_run();
  config.catalogue.datasets.push_back(counting());
  config.catalogue.losses.push_back(twice());
  config.catalogue.pipeline_schedules.push_back(gpipe());
  config.model.num_layers = 4;
  config.train.fp64 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 6;
  return config;
}

RunConfig on_eight(RunConfig config) {
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.use_distributed_optimizer = true;
  config.train.global_batch_size = 8;
  return config;
}

void expect_parity(const RunConfig& config) {
  const Parity parity = compare(run_layout(config, 8), run_layout(on_one_rank(config, 8), 1));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

TEST(OwnEntries, ADatasetAndALossAndAScheduleTrainOnEveryAxisAsOnOneRank) {
  RunConfig config = on_eight(own_run());
  config.data.mock_data = false;
  config.data.dataset = "counting";
  config.train.loss = "twice";
  config.parallel.pipeline_schedule = "gpipe";
  expect_parity(config);
}

TEST(OwnEntries, SgdTrainsOnEveryAxisAsOnOneRank) {
  RunConfig config = on_eight(own_run());
  config.optim.optimizer = "sgd";
  expect_parity(config);
}

TEST(OwnEntries, TheLossIsTheOneThatWasChosen) {
  RunConfig config = own_run();
  Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
  Session once(config, runtime.device());
  config.train.loss = "twice";
  Session two(config, runtime.device());
  EXPECT_NEAR(train(two, 0, 1)[0], 2 * train(once, 0, 1)[0], 1e-12);
}

TEST(OwnEntries, TheDatasetIsTheOneThatWasChosen) {
  RunConfig config = own_run();
  config.data.mock_data = false;
  config.data.dataset = "counting";
  const Sources sources(config);
  Sample sample;
  sources.train->sample(48, sample);
  EXPECT_EQ(sample.tokens[0], 48);
  EXPECT_EQ(sample.labels[1], 0) << "--count-to is 50";
  EXPECT_NE(sources.valid, nullptr);
  EXPECT_EQ(sources.test, nullptr);
  config.data.dataset = "other";
  EXPECT_THROW(Sources{config}, Error);
}

// What plan takes for the memory of a sample is what the dataset's entry says.
TEST(OwnEntries, ADatasetWithOtherPartsThanItsEntrySaysIsAnError) {
  RunConfig config = own_run();
  config.data.mock_data = false;
  config.data.dataset = "counting";
  config.catalogue.datasets[0].parts.positions = true;
  EXPECT_THROW(Sources{config}, Error);
  EXPECT_TRUE(Sources::made_up(config).first().parts().positions);
}

TEST(OwnEntries, AScheduleWithOneChunkRefusesSeveral) {
  RunConfig config = on_eight(own_run());
  config.parallel.pipeline_schedule = "gpipe";
  config.parallel.num_layers_per_virtual_pipeline_stage = 1;
  const Problems problems = layout_problems(config.layout(), 8);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--pipeline-schedule gpipe has one chunk a pipeline rank, not 2");
}

}  // namespace
}  // namespace phx
