// Training steps on one GPU at the shapes that matter: tokens/s, MFU, peak memory, in bf16 with
// AdamW, gradient clipping and random tokens. MFU = (6 x matmul weights + 6 x layers x seq x heads
// x head size) x tokens/s / 989.5e12; of experts the weights count that a token goes through.
//
//   bench_gpu_train [case...] [--steps N] [--deterministic-mode] [--attention-dropout P] [--ops]
//                   [--gemm-table FILE|none] [--tune FILE] [--floor]
//
// Cases: gpt2s llama1b llama8b_8L qwen3moe_6L gemma2_4L. The last one has layers of Gemma 2 9B (a
// small vocabulary, so that they count) and is run without and with its soft cap on attention.
// --ops: a table of the step's kernels, from three more steps.
// --tune: writes a table of the fastest algorithms for the products of the cases. --floor: what the
// step could take (gpu_floor.h). The last line of a case is JSON, for benchmarks/h200.sh.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gpu_cases.h"
#include "gpu_floor.h"
#include "phalanx/base/error.h"
#include "phalanx/core/op_trace.h"
#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/gemm_tuning.h"
#include "phalanx/report/memory_table.h"
#include "phalanx/report/op_table.h"
#include "phalanx/train/session.h"
#include "phalanx/train/trainer.h"
#include "random_tokens.h"

using namespace phx;

namespace {

struct Settings {
  int steps = 20;
  bool deterministic = false;
  double attention_dropout = 0;
  double softcap = 0;
  bool ops = false, floor = false;
  std::string gemm_table, tune;
};

void tune(Runtime& runtime, const std::string& file) {
  kernels::tune_gemms(runtime, file, [](const kernels::TunedGemm& gemm) {
    std::printf("%-44s %2d candidates  %8.4f -> %8.4f ms  %5.1f -> %5.1f TFLOP/s\n",
                gemm.problem.c_str(), gemm.candidates, gemm.first_ms, gemm.best_ms,
                gemm.flops / gemm.first_ms / 1e9, gemm.flops / gemm.best_ms / 1e9);
  });
}

// Returns the seconds of a step.
double run(const Case& of, const Settings& settings) {
  const int steps = settings.steps;
  Runtime runtime({.kind = DeviceKind::cuda,
                   .deterministic = settings.deterministic,
                   .gemm_table = settings.gemm_table});
  RunConfig config = config_of(of);
  config.model.attention_dropout = settings.attention_dropout;
  if (settings.softcap > 0) config.model.attn_logit_softcapping = settings.softcap;
  Sources sources(config);
  sources.train = std::make_shared<RandomTokens>(of.vocab, of.seq);
  Session session(config, sources, runtime.device());
  using Clock = std::chrono::steady_clock;
  Clock::time_point start;
  double loss = 0;
  constexpr int kWarmUp =
      5;  // the arena is packed after two steps, plans and algorithms are chosen in the first
  const auto take_step = [&](int i) {
    session.train_batches.load(int64_t{i} * of.micro_batch);
    session.step.run(session.train_batches,
                     {.iteration = i + 1, .update = i + 1, .lr = 1e-4, .weight_decay = 0.1});
    if (session.step.pending() > 1) {
      const StepResults results = session.step.collect();
      loss = results.loss_sum / results.tokens;
    }
  };
  const auto drain = [&] {
    while (session.step.pending() > 0) session.step.collect();
    runtime.synchronize();
  };
  for (int i = 0; i < kWarmUp; ++i) take_step(i);
  drain();
  start = Clock::now();
  for (int i = 0; i < steps; ++i) take_step(kWarmUp + i);
  runtime.synchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count() / steps;
  const double rate = double(of.micro_batch * of.seq) / seconds;
  const MemoryReport memory = runtime.allocator().report();
  std::printf(
      "%-12s %8.1f ms  %9.0f tok/s  MFU %5.1f%%  peak %6.1f GiB  reserved %6.1f GiB  replayed %lld "
      " loss %.3f\n",
      of.name, seconds * 1e3, rate, 100 * mfu(of, rate), double(memory.peak_total) / (1 << 30),
      double(memory.reserved) / (1 << 30), static_cast<long long>(memory.replayed_steps), loss);
  std::printf("%s\n", memory_table(memory).c_str());
  for (const auto& line : runtime.extension<kernels::AttentionUse>().lines())
    std::printf("%s\n", line.text.c_str());
  if (!settings.tune.empty()) tune(runtime, settings.tune);
  StepFloor floor;
  if (settings.ops || settings.floor) {
    drain();
    constexpr int kTraced = 3;
    std::vector<OpRecord> records;
    {
      OpTrace trace(runtime);
      start = Clock::now();
      for (int i = 0; i < kTraced; ++i) take_step(kWarmUp + steps + i);
      runtime.synchronize();
      const double traced = std::chrono::duration<double>(Clock::now() - start).count() / kTraced;
      records = trace.collect();
      if (settings.ops)
        std::printf("%s\n", op_table(records, kTraced, traced * 1e3, /*lines=*/1000).c_str());
    }
    if (settings.floor) {
      const FloorShape shape{of.layers, of.hidden, of.heads,       of.groups,  of.head_dim, of.ffn,
                             of.vocab,  of.seq,    of.micro_batch, of.experts, of.topk};
      floor = FloorMeter(runtime, shape).measure(records, kTraced);
      std::printf(
          "floor %.1f ms: products %.1f (%.0f TFLOP/s), attention %.1f, other bytes %.1f "
          "(copies at %.2f TB/s); the step reaches %.1f%% of it\n",
          floor.ms(), floor.gemm_ms, floor.gemm_tflops, floor.attention_ms, floor.memory_ms,
          floor.copy_tb, 100 * floor.ms() / (seconds * 1e3));
    }
  }
  std::printf(
      "{\"case\": \"%s\", \"ms\": %.2f, \"tokens_per_s\": %.0f, \"mfu\": %.4f, "
      "\"peak_gib\": %.1f, \"floor_ms\": %.2f, \"deterministic\": %s}\n",
      of.name, seconds * 1e3, rate, mfu(of, rate), double(memory.peak_total) / (1 << 30),
      floor.ms(), settings.deterministic ? "true" : "false");
  std::fflush(stdout);
  return seconds;
}

void run_without_and_with_softcap(const Case& of, Settings settings) {
  const double plain = run(of, settings);
  settings.softcap = 50;
  const double capped = run(of, settings);
  std::printf("{\"case\": \"%s\", \"ms\": %.2f, \"softcap_ms\": %.2f, \"softcap_ratio\": %.3f}\n",
              of.name, plain * 1e3, capped * 1e3, capped / plain);
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> names;
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
      settings.steps = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--deterministic-mode") == 0) {
      settings.deterministic = true;
    } else if (std::strcmp(argv[i], "--attention-dropout") == 0 && i + 1 < argc) {
      settings.attention_dropout = std::atof(argv[++i]);
    } else if (std::strcmp(argv[i], "--ops") == 0) {
      settings.ops = true;
    } else if (std::strcmp(argv[i], "--floor") == 0) {
      settings.floor = true;
    } else if (std::strcmp(argv[i], "--gemm-table") == 0 && i + 1 < argc) {
      settings.gemm_table = argv[++i];
    } else if (std::strcmp(argv[i], "--tune") == 0 && i + 1 < argc) {
      settings.tune = argv[++i];
    } else {
      names.emplace_back(argv[i]);
    }
  }
  for (const Case& of : kCases) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted |= name == of.name;
    if (!wanted) continue;
    if (of.gemma2)
      run_without_and_with_softcap(of, settings);
    else
      run(of, settings);
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
