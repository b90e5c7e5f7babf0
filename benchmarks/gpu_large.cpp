// Models that fill a GPU's memory: tokens/s, MFU, and memory by purpose beside the plan, which is
// the same session on a meta device. In bf16 with AdamW, gradient clipping and random tokens, at
// sequences of 8192 and micro-batches of one. MFU as in gpu_train.cpp.
//
//   bench_gpu_large [case...] [--steps N]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/report/memory_table.h"
#include "phalanx/train/session.h"
#include "random_tokens.h"

using namespace phx;

namespace {

constexpr int64_t kSeq = 8192, kVocab = 128256, kHeadDim = 128, kGroups = 8;

void selective(RunConfig& config) {
  config.train.recompute_granularity = RecomputeGranularity::selective;
  config.train.recompute_modules = {"layernorm", "activation"};
}

void narrow(RunConfig& config, bool gradients, bool exp_avg, bool exp_avg_sq) {
  OptimizerConfig& optim = config.optim;
  optim.use_precision_aware_optimizer = true;
  if (gradients) optim.main_grads_dtype = StateDType::bf16;
  if (exp_avg) optim.exp_avg_dtype = StateDType::bf16;
  if (exp_avg_sq) optim.exp_avg_sq_dtype = StateDType::bf16;
}

struct Case {
  const char* name;
  const char* how;
  int64_t layers, hidden, ffn, micro_batches;
  void (*set)(RunConfig& config);
};

const Case kCases[] = {
    {"llama8b", "gradients and exp_avg in bf16", 32, 4096, 14336, 8,
     [](RunConfig& c) { narrow(c, true, true, false); }},
    {"llama8b_grads32", "exp_avg in bf16, norms and activations recomputed", 32, 4096, 14336, 8,
     [](RunConfig& c) {
       narrow(c, false, true, false);
       selective(c);
     }},
    {"llama8b_states32", "all in fp32; 12 layers recomputed, of the others norms and activations",
     32, 4096, 14336, 8,
     [](RunConfig& c) {
       selective(c);
       c.train.recompute_granularity = RecomputeGranularity::full;
       c.train.recompute_method = RecomputeMethod::block;
       c.train.recompute_num_layers = 12;
     }},
    {"llama14b", "gradients and moments in bf16, half of the optimizer's state in host memory", 40,
     5120, 17408, 16,
     [](RunConfig& c) {
       narrow(c, true, true, true);
       selective(c);
       c.optim.optimizer_cpu_offload = c.optim.overlap_cpu_optimizer_d2h_h2d = true;
       c.optim.optimizer_offload_fraction = 0.5;
     }},
};

RunConfig config_of(const Case& of) {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = of.layers;
  model.hidden_size = of.hidden;
  model.num_attention_heads = of.hidden / kHeadDim;
  model.group_query_attention = true;
  model.num_query_groups = kGroups;
  model.kv_channels = kHeadDim;
  model.ffn_hidden_size = of.ffn;
  model.vocab_size = kVocab;
  model.make_vocab_size_divisible_by = 128;
  model.seq_length = model.max_position_embeddings = kSeq;
  model.untie_embeddings_and_output_weights = true;
  model.position_embedding_type = PositionEmbedding::rope;
  model.rotary_base = 500000;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = of.micro_batches;
  config.train.bf16 = true;
  config.train.train_iters = 1000;
  config.optim.lr = 1e-4;
  config.data.mock_data = true;
  of.set(config);
  return config;
}

double mfu(const Case& of, double tokens_per_second) {
  const double attention = double(of.hidden) * (2 * of.hidden + 2 * kGroups * kHeadDim);
  const double weights =
      of.layers * (attention + 3.0 * of.hidden * of.ffn) + double(kVocab) * of.hidden;
  const double per_token = 6 * weights + 6.0 * of.layers * kSeq * of.hidden;
  return per_token * tokens_per_second / 989.5e12;
}

void step(Session& session, int64_t i) {
  session.train_batches.load(i * *session.config.train.global_batch_size);
  session.step.run(session.train_batches,
                   {.iteration = i + 1, .update = i + 1, .lr = 1e-4, .weight_decay = 0.1});
}

struct Memory {
  MemoryReport device;
  HostMemory host;
};

Memory planned(const RunConfig& config) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  Session session(config, meta.device());
  for (int64_t i = 0; i < 3; ++i) {  // the third is replayed from the arena
    step(session, i);
    session.step.forget();
  }
  return {meta.allocator().report(), host_memory(meta)};
}

void compare(const char* what, int64_t plan, int64_t real) {
  if (plan == 0 && real == 0) return;
  std::printf("  %-14s %12s %12s %+8.3f%%\n", what, format_bytes(plan).c_str(),
              format_bytes(real).c_str(), plan == 0 ? 100.0 : 100.0 * double(real - plan) / plan);
}

void run(const Case& of, int steps) {
  const RunConfig config = config_of(of);
  const Memory plan = planned(config);
  Runtime runtime({.kind = DeviceKind::cuda, .threads = int(std::thread::hardware_concurrency())});
  Sources sources(config);
  sources.train = std::make_shared<RandomTokens>(kVocab, kSeq);
  Session session(config, sources, runtime.device());
  using Clock = std::chrono::steady_clock;
  Clock::time_point start;
  double loss = 0;
  constexpr int kWarmUp = 3;  // the arena is packed after two
  for (int i = 0; i < kWarmUp + steps; ++i) {
    if (i == kWarmUp) {
      while (session.step.pending() > 0) session.step.collect();
      runtime.synchronize();
      start = Clock::now();
    }
    step(session, i);
    if (session.step.pending() < 2) continue;
    const StepResults results = session.step.collect();
    loss = results.loss_sum / results.tokens;
  }
  runtime.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / steps;
  const double rate = double(of.micro_batches * kSeq) / seconds;
  std::printf("%s: %s\n%.1f ms a step of %lld sequences, %.0f tok/s, MFU %.1f%%, loss %.3f\n",
              of.name, of.how, seconds * 1e3, static_cast<long long>(of.micro_batches), rate,
              100 * mfu(of, rate), loss);
  const MemoryReport memory = runtime.allocator().report();
  std::printf("  at the peak         planned      measured\n");
  for (int i = 0; i < kNumPurposes; ++i)
    compare(name(static_cast<Purpose>(i)), plan.device.at_peak[i], memory.at_peak[i]);
  compare("total", plan.device.peak_total, memory.peak_total);
  compare("taken", plan.device.reserved, memory.reserved);
  compare("on the host", plan.host.reserved(), host_memory(runtime).reserved());
  std::printf("  replayed %lld of %d steps\n\n", static_cast<long long>(memory.replayed_steps),
              kWarmUp + steps);
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> names;
  int steps = 8;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
      steps = std::atoi(argv[++i]);
    else
      names.emplace_back(argv[i]);
  }
  for (const Case& of : kCases) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted |= name == of.name;
    if (wanted) run(of, steps);
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
