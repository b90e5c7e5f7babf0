// Attention of one context-parallel rank of many, without the others (plan/rehearsal_world.h), for
// every --cp-comm-type, beside the library's attention over the same queries and keys in plain
// calls. What is missing to 100% is cutting, merging and adding; transfers take no time unless
// --gb-s says so.
//
//   bench_context_attention [tokens of the whole sequence] [ranks] [--gb-s RATE] [--device cpu]
#include "phalanx/parallel/context/context_attention.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/core/segment.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/attention_use.h"
#include "phalanx/kernels/random_fill.h"
#include "phalanx/plan/rehearsal_world.h"

using namespace phx;

namespace {

struct Settings {
  int64_t tokens = 131072;
  int ranks = 8;
  double gb_s = 0;
  bool gpu = true;
  QkvHeads heads = {.n = 32, .g = 8, .d = 128};
};

using Clock = std::chrono::steady_clock;

// Milliseconds of a call, the median of five.
double time_of(Runtime& runtime, const std::function<void()>& call) {
  call();
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    runtime.synchronize();
    const auto start = Clock::now();
    call();
    runtime.synchronize();
    rounds.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::ranges::nth_element(rounds, rounds.begin() + 2);
  return rounds[2];
}

Tensor randn(int64_t s, int64_t width, Device device) {
  Tensor x =
      empty({s, 1, width}, device.kind() == DeviceKind::cuda ? DType::bf16 : DType::f32, device);
  kernels::fill_normal(x, kernels::whole_box(x), {.seed = 1, .site = uint64_t(width), .std = 1});
  return x;
}

// Queries against keys, causal if they are the same rows; n and g heads.
struct Block {
  int64_t queries, keys;
  bool causal;
  int64_t n, g;
};

struct Times {
  double forward = 0, backward = 0;
};

// The blocks one after the other, with nothing in between.
Times plain(Runtime& runtime, const Settings& settings, const std::vector<Block>& blocks) {
  Times all;
  const int64_t d = settings.heads.d;
  for (const Block& block : blocks) {
    const Device device = runtime.device();
    const Tensor q = randn(block.queries, block.n * d, device);
    const Tensor kv = randn(block.keys, 2 * block.g * d, device);
    const Tensor d_o = randn(block.queries, block.n * d, device);
    const Tensor o = empty_like(q), dq = empty_like(q), dkv = empty_like(kv);
    Tensor lse = empty({1, block.n, block.queries}, DType::f32, device);
    const kernels::AttentionInputs in{.q = heads_of(q, d, 0, block.n),
                                      .k = heads_of(kv, d, 0, block.g),
                                      .v = heads_of(kv, d, block.g, block.g)};
    const kernels::AttentionOptions options{.causal = block.causal};
    const HeadView out = heads_of(o, d, 0, block.n);
    all.forward += time_of(runtime, [&] { kernels::attention(in, options, out, lse); });
    all.backward += time_of(runtime, [&] {
      kernels::attention_backward(in, options, out, lse, heads_of(d_o, d, 0, block.n),
                                  {.dq = heads_of(dq, d, 0, block.n),
                                   .dk = heads_of(dkv, d, 0, block.g),
                                   .dv = heads_of(dkv, d, block.g, block.g)});
    });
  }
  return all;
}

// What a rank in the middle computes.
std::vector<Block> blocks_of(const std::string& comm, const Settings& settings, int64_t rank,
                             int64_t near) {
  const int64_t n = settings.heads.n, g = settings.heads.g;
  if (comm == "a2a") return {{settings.tokens, settings.tokens, true, n / near, g / near}};
  const int64_t ring = settings.ranks / near, c = settings.tokens / (2 * ring);
  std::vector<Block> blocks;
  for (const int64_t own : {rank, 2 * ring - 1 - rank}) {
    blocks.push_back({c, c, true, n / near, g / near});
    if (own == 0) continue;
    if (comm == "all_gather")
      blocks.push_back({c, own * c, false, n, g});
    else
      for (int64_t i = 0; i < own; ++i) blocks.push_back({c, c, false, n / near, g / near});
  }
  return blocks;
}

Times on_a_rank(Runtime& runtime, const Settings& settings, const std::string& comm, int rank,
                int near) {
  RehearsalWorld world(rank, settings.ranks, {.bytes_per_second = settings.gb_s * 1e9});
  std::vector<int> all, inner, outer;
  for (int i = 0; i < settings.ranks; ++i) all.push_back(i);
  for (int i = 0; i < near; ++i) inner.push_back(rank / near * near + i);
  for (int i = rank % near; i < settings.ranks; i += near) outer.push_back(i);
  const auto group = world.group(all, "cp"), neighbours = world.group(inner, "cp neighbours"),
             ring = world.group(outer, "cp ring");
  const ContextParallel ranks{.group = group.get(),
                              .inner = neighbours.get(),
                              .outer = ring.get(),
                              .comm = {context_comm(comm)}};
  const QkvHeads& heads = settings.heads;
  const int64_t s = settings.tokens / settings.ranks;
  const Tensor qkv = randn(s, (heads.n + 2 * heads.g) * heads.d, runtime.device());
  const Tensor d_o = randn(s, heads.n * heads.d, runtime.device());
  const auto forward = [&] {
    return Segment(std::span(&qkv, 1), [&](std::span<const Tensor> x) {
      return std::vector{context_attention(x[0], heads, {}, {}, ranks, 0)};
    });
  };
  Times found;
  found.forward = time_of(runtime, [&] { forward(); });
  found.backward =
      time_of(runtime, [&] { forward().backward(std::span(&d_o, 1)); }) - found.forward;
  return found;
}

void run(const Settings& settings) {
  std::printf("%lld tokens on %d ranks, %lld query heads on %lld key heads of %lld\n",
              static_cast<long long>(settings.tokens), settings.ranks,
              static_cast<long long>(settings.heads.n), static_cast<long long>(settings.heads.g),
              static_cast<long long>(settings.heads.d));
  for (const char* comm : {"p2p", "all_gather", "a2a", "a2a+p2p"}) {
    Runtime runtime({.kind = settings.gpu ? DeviceKind::cuda : DeviceKind::cpu});
    const int near = std::string(comm) == "a2a"       ? settings.ranks
                     : std::string(comm) == "a2a+p2p" ? 2
                                                      : 1;
    const int rank = settings.ranks / 2;
    const Times ours = on_a_rank(runtime, settings, comm, rank, near);
    const Times calls = plain(runtime, settings, blocks_of(comm, settings, rank / near, near));
    std::printf(
        "  %-10s forward %8.2f ms (%5.1f%% of plain calls, %8.2f)  backward %8.2f ms (%5.1f%%, "
        "%8.2f)\n",
        comm, ours.forward, 100 * calls.forward / ours.forward, calls.forward, ours.backward,
        100 * calls.backward / ours.backward, calls.backward);
    for (const auto& line : runtime.extension<kernels::AttentionUse>().lines())
      if (line.slow) std::printf("             %s\n", line.text.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  int place = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--gb-s" && i + 1 < argc)
      settings.gb_s = std::atof(argv[++i]);
    else if (arg == "--device" && i + 1 < argc)
      settings.gpu = std::string(argv[++i]) == "cuda";
    else if (place++ == 0)
      settings.tokens = std::atoll(argv[i]);
    else
      settings.ranks = std::atoi(argv[i]);
  }
  if (!settings.gpu) settings.heads = {.n = 8, .g = 8, .d = 16};
  run(settings);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
