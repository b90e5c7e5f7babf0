// Layouts of runs in which some parameters are frozen, against one rank, and resumed.
#include <gtest/gtest.h>

#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "phalanx/verify/resume.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

struct FrozenLayout {
  const char* name;
  std::vector<std::string> modules;
  int world = 1;
  void (*change)(RunConfig&);
};

void pipeline(RunConfig& c) { c.parallel.pipeline_model_parallel_size = 2; }
void experts(RunConfig& c) {
  c.model.moe.num_experts = 4;
  c.model.moe.moe_ffn_hidden_size = 24;
  c.model.moe.moe_aux_loss_coeff = {0.1};
  c.model.moe.moe_router_load_balancing_type = {"aux_loss"};
  c.parallel.expert_model_parallel_size = 2;
}

const FrozenLayout kLayouts[] = {
    {"TP2 SP",
     {"self_attention", "embedding"},
     2,
     [](RunConfig& c) {
       c.parallel.tensor_model_parallel_size = 2;
       c.parallel.sequence_parallel = true;
     }},
    {"TP2, norms",
     {"layer_norm_weight", "q_layernorm"},
     2,
     [](RunConfig& c) {
       c.parallel.tensor_model_parallel_size = 2;
       c.parallel.sequence_parallel = true;
     }},
    {"PP2, a tied embedding", {"embedding", "mlp"}, 2, pipeline},
    {"PP2, a stage with nothing to train",
     {"embedding", "decoder.layers.0", "decoder.layers.1"},
     2,
     [](RunConfig& c) {
       pipeline(c);
       c.model.untie_embeddings_and_output_weights = true;
     }},
    {"PP2 zb-h1",
     {"linear_fc*"},
     2,
     [](RunConfig& c) {
       pipeline(c);
       c.parallel.pipeline_schedule = "zb-h1";
     }},
    {"PP2 VPP2, recomputed",
     {"self_attention", "decoder.layers.3"},
     2,
     [](RunConfig& c) {
       pipeline(c);
       c.parallel.num_virtual_stages_per_pipeline_rank = 2;
       c.train.recompute_granularity = RecomputeGranularity::full;
       c.train.recompute_method = RecomputeMethod::uniform;
       c.train.recompute_num_layers = 1;
     }},
    {"DP2", {"mlp"}, 2, [](RunConfig&) {}},
    {"DP2 ZeRO-1 overlap both",
     {"mlp", "final_layernorm"},
     2,
     [](RunConfig& c) {
       c.parallel.use_distributed_optimizer = true;
       c.parallel.overlap_grad_reduce = c.parallel.overlap_param_gather = true;
       c.parallel.ddp_bucket_size = 3000;
     }},
    {"DP2 ZeRO-3",
     {"mlp", "embedding"},
     2,
     [](RunConfig& c) { c.parallel.use_megatron_fsdp = true; }},
    {"DP4 ZeRO-2 2 copies, a unit with nothing to train",
     {"decoder.layers.1"},
     4,
     [](RunConfig& c) {
       c.parallel.use_megatron_fsdp = true;
       c.parallel.data_parallel_sharding_strategy = Sharding::optim_grads;
       c.parallel.num_distributed_optimizer_instances = 2;
     }},
    {"CP2",
     {"linear_proj", "embedding"},
     2,
     [](RunConfig& c) { c.parallel.context_parallel_size = 2; }},
    {"EP2, experts", {"experts"}, 2, experts},
    {"EP2 ZeRO-1, routers",
     {"router"},
     4,
     [](RunConfig& c) {
       experts(c);
       c.parallel.use_distributed_optimizer = true;
     }},
};

RunConfig run_of(const FrozenLayout& layout) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  config.train.eval_iters = 1;
  config.train.freeze_modules = layout.modules;
  layout.change(config);
  return config;
}

TEST(FrozenLayouts, EqualOneRank) {
  for (const FrozenLayout& layout : kLayouts) {
    RunConfig config = run_of(layout);
    config.train.fp64 = true;
    const LayoutOutcome one = run_layout(on_one_rank(config, layout.world), 1);
    const Parity parity = compare(run_layout(config, layout.world), one);
    EXPECT_EQ(parity.faults(), std::vector<std::string>{}) << layout.name;
    EXPECT_LT(one.steps[0].gradients.size(), one.weights.size()) << layout.name;
  }
}

TEST(FrozenLayouts, ResumeToTheByte) {
  for (const FrozenLayout& layout : kLayouts) {
    RunConfig config = run_of(layout);
    config.train.bf16 = true;
    const TempFolder folder;
    const ResumeProof proof = prove_resume(config, Sources(config), layout.world, 4, folder.path());
    EXPECT_EQ(proof.faults, std::vector<std::string>{}) << layout.name;
    EXPECT_GT(proof.tensors, 20) << layout.name;
  }
}

}  // namespace
}  // namespace phx
