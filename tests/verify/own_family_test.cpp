// A worked example: a decoder whose attention and MLP stand side by side (as in GPT-J), and one
// whose every second layer has no MLP. Each is a function of the layer, and nothing else changes.
#include <gtest/gtest.h>

#include <atomic>

#include "phalanx/transformer/mlp.h"
#include "phalanx/transformer/self_attention.h"
#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "support/gradients.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

// x + attention(norm(x)) + mlp(norm(x))
class SideBySide : public LayerPart {
 public:
  explicit SideBySide(const LayerContext& layer) : attention_(layer), mlp_(layer) {
    add_child("self_attention", attention_);
    add_child("mlp", mlp_);
  }
  Tensor add_to(const Tensor& residual, const Tensor& x,
                const LayerCall& call) override {           // [s/tp, b, h] both
    const Tensor y = attention_.add_to(residual, x, call);  // [s/tp, b, h]
    return mlp_.add_to(y, x, call);                         // [s/tp, b, h]
  }

 private:
  SelfAttention attention_;
  Mlp mlp_;
};

std::vector<NamedPart> side_by_side(const LayerContext& layer) {
  std::vector<NamedPart> parts;
  parts.push_back({"branches", std::make_unique<SideBySide>(layer)});
  return parts;
}

// The same, which counts how often it runs.
class Counted : public SideBySide {
 public:
  using SideBySide::SideBySide;
  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override {
    ++calls;
    return SideBySide::add_to(residual, x, call);
  }
  static inline std::atomic<int> calls = 0;
};

std::vector<NamedPart> counted(const LayerContext& layer) {
  std::vector<NamedPart> parts;
  parts.push_back({"branches", std::make_unique<Counted>(layer)});
  return parts;
}

std::vector<NamedPart> every_second_mlp(const LayerContext& layer) {
  std::vector<NamedPart> parts = decoder_layer(layer);
  if (layer.layer % 2 == 1) parts.pop_back();
  return parts;
}

RunConfig run_of(const LayerParts& parts) {
  RunConfig config = tiny_run();
  config.family = decoder_of("mine", "an example", parts);
  config.model.num_layers = 4;
  config.train.fp64 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.use_distributed_optimizer = true;
  return config;
}

TEST(OwnFamily, TrainsOnEveryAxisAsOnOneRank) {
  for (const LayerParts& parts : {LayerParts(side_by_side), LayerParts(every_second_mlp)}) {
    const RunConfig config = run_of(parts);
    const Parity parity = compare(run_layout(config, 8), run_layout(on_one_rank(config, 8), 1));
    EXPECT_EQ(parity.faults(), std::vector<std::string>{});
  }
}

TEST(OwnFamily, APartThatSaysNothingIsRefusedASharedSequence) {
  RunConfig config = run_of(side_by_side);
  config.parallel = {.context_parallel_size = 2};
  EXPECT_EQ(
      error_of([&] { run_layout(config, 2); }),
      "this layout cannot be trained\nerror: --context-parallel-size 2: this model, or a part "
      "of its layers, needs whole sequences\n  hint: override takes_context_parallel() to "
      "return true if every token is computed alone; or use --context-parallel-size 1\n");
}

// Attention and MLP do, and nothing else is in it.
class TakesAShare : public SideBySide {
 public:
  using SideBySide::SideBySide;
  bool takes_context_parallel() const override { return true; }
};

TEST(OwnFamily, APartThatTakesAShareTrainsOnSharedSequencesAsOnOneRank) {
  RunConfig config = run_of([](const LayerContext& layer) {
    std::vector<NamedPart> parts;
    parts.push_back({"branches", std::make_unique<TakesAShare>(layer)});
    return parts;
  });
  config.parallel.context_parallel_size = 2;
  const Parity parity = compare(run_layout(config, 8), run_layout(on_one_rank(config, 8), 1));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

TEST(OwnFamily, HasItsOwnParameters) {
  const auto names = [](const LayerParts& parts) {
    std::vector<std::string> names;
    const RunConfig config = run_of(parts);
    config.family(config.model)->for_each_parameter([&](const std::string& name, Parameter&) {
      if (name.starts_with("decoder.layers.1.")) names.push_back(name);
    });
    return names;
  };
  for (const std::string& name : names(side_by_side))
    EXPECT_TRUE(name.starts_with("decoder.layers.1.branches.")) << name;
  ASSERT_FALSE(names(every_second_mlp).empty());
  for (const std::string& name : names(every_second_mlp))
    EXPECT_EQ(name.find(".mlp."), std::string::npos) << name;
}

TEST(OwnFamily, RecomputeModulesTakesAPartByItsName) {
  RunConfig config = run_of(counted);
  config.train.recompute_granularity = RecomputeGranularity::selective;
  const auto run = [&](std::vector<std::string> modules) {
    config.train.recompute_modules = std::move(modules);
    Counted::calls = 0;
    LayoutOutcome outcome = run_layout(config, 8, {.steps = 1, .evaluate = false});
    return std::pair(std::move(outcome), int(Counted::calls));
  };
  const auto [kept, calls] = run({"layernorm"});
  const auto [recomputed, calls_then] = run({"layernorm", "branches"});
  EXPECT_EQ(compare(recomputed, kept).worst(), 0) << "recompute changes no bit";
  EXPECT_EQ(calls_then, 2 * calls);
}

}  // namespace
}  // namespace phx
