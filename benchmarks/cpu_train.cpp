// Training steps of a 15M-parameter Llama on the CPU (6 layers, hidden 288, 6 heads, ffn 768,
// vocabulary 32000 tied, sequence 256, batch 8, fp32): tokens/s, and the share of the machine's
// sgemm peak, measured in the same run. benchmarks/cpu_peer.py is the same in PyTorch.
//
//   bench_cpu_train [threads] [steps]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "phalanx/train/session.h"
#include "phalanx/train/trainer.h"

using namespace phx;

namespace {

RunConfig llama_15m() {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = 6;
  model.hidden_size = 288;
  model.num_attention_heads = 6;
  model.ffn_hidden_size = 768;
  model.seq_length = model.max_position_embeddings = 256;
  model.vocab_size = 32000;
  model.position_embedding_type = PositionEmbedding::rope;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  config.train.micro_batch_size = 8;
  config.train.train_iters = 1000;
  config.optim.lr = 1e-3;
  config.data.mock_data = true;
  return config;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, steps = argc > 2 ? std::atoi(argv[2]) : 15;
  const RunConfig config = llama_15m();
  Runtime runtime({.threads = threads});
  Session session(config, runtime.device());
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < steps + 4; ++i) {  // four to warm up: the arena is packed after two
    const auto start = std::chrono::steady_clock::now();
    session.train_batches.load(i * 8);
    session.step.run(session.train_batches,
                     {.iteration = i + 1, .update = i + 1, .lr = 1e-3, .weight_decay = 0.1});
    const StepResults results = session.step.collect();
    if (i >= 4) times.push_back(seconds_since(start));
    loss = results.loss_sum / results.tokens;
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2], tokens = 8 * 256;
  const double peak = peak_flops(runtime.device(), DType::f32).value();
  const double rate = training_flops_of_batch(flops_shape(config.model), 8, 256) / median;
  std::printf(
      "{\"threads\": %d, \"median_ms\": %.1f, \"fastest_ms\": %.1f, \"tokens_per_s\": %.0f, "
      "\"sgemm_peak_gflops\": %.1f, "
      "\"achieved_gflops\": %.1f, \"share_of_peak\": %.3f, \"loss\": %.4f}\n",
      threads, median * 1e3, times[0] * 1e3, tokens / median, peak / 1e9, rate / 1e9, rate / peak,
      loss);
  return 0;
}
