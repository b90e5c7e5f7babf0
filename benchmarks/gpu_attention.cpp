// Attention over packed documents on the GPU: cuDNN beside our own kernels, and beside one dense
// sequence of as many tokens. Lengths are random, so that the tokens are all used; TFLOP/s counts
// the (query, key) pairs that are visible.
//
//   bench_gpu_attention [tokens] [mean length...]
//   bench_gpu_attention softcap [sequence...]
//
// The second form: a soft cap on the heads of Gemma 2 9B, by products and by our own kernels,
// beside cuDNN without one; and the same on smaller heads.
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/random_fill.h"

using namespace phx;
using namespace phx::kernels;

namespace {

constexpr int64_t kQueryHeads = 32, kKeyHeads = 8, kHeadDim = 128;

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds a call, the median of several rounds.
double time_of(Runtime& runtime, const std::function<void()>& call) {
  call();
  runtime.synchronize();
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) {
    const auto start = Clock::now();
    constexpr int kCalls = 5;
    for (int i = 0; i < kCalls; ++i) call();
    runtime.synchronize();
    rounds.push_back(since(start) / kCalls);
  }
  std::nth_element(rounds.begin(), rounds.begin() + 3, rounds.end());
  return rounds[3];
}

// Ends of sequences with lengths around `mean`, as the loader gives them: their number and the
// longest rounded up to powers of two.
struct Documents {
  std::vector<int64_t> ends{0};
  int64_t longest = 0;
  double pairs = 0;
};
Documents documents(int64_t tokens, int64_t mean) {
  Documents of;
  std::mt19937 random(1);
  std::exponential_distribution<double> length(1.0 / double(mean));
  while (of.ends.back() < tokens) {
    const int64_t end = std::min(tokens, of.ends.back() + 1 + int64_t(length(random)));
    const int64_t n = end - of.ends.back();
    of.longest = std::max(of.longest, n);
    of.pairs += double(n) * double(n + 1) / 2;
    of.ends.push_back(end);
  }
  of.ends.resize(std::bit_ceil(of.ends.size() - 1) + 1, tokens);
  of.longest = std::min<int64_t>(tokens, int64_t(std::bit_ceil(uint64_t(of.longest))));
  return of;
}

void run(Runtime& runtime, int64_t tokens, int64_t mean) {
  const Device device = runtime.device();
  const auto randn = [&](int64_t width) {
    Tensor x = empty({tokens, 1, width}, DType::bf16, device);
    fill_normal(x, whole_box(x), {.seed = 1, .site = uint64_t(width), .std = 1});
    return x;
  };
  const int64_t width = (kQueryHeads + 2 * kKeyHeads) * kHeadDim;
  const Tensor qkv = randn(width), d_o = randn(kQueryHeads * kHeadDim);
  const Tensor o = empty(d_o.shape(), DType::bf16, device);
  const Tensor d_qkv = empty(qkv.shape(), DType::bf16, device);
  Tensor lse = empty({1, kQueryHeads, tokens}, DType::f32, device);
  const auto view = [](const Tensor& x, int64_t first, int64_t n) {
    return heads_of(x, kHeadDim, first, n);
  };
  AttentionInputs in{.q = view(qkv, 0, kQueryHeads),
                     .k = view(qkv, kQueryHeads, kKeyHeads),
                     .v = view(qkv, kQueryHeads + kKeyHeads, kKeyHeads)};
  const HeadView out = view(o, 0, kQueryHeads), grad = view(d_o, 0, kQueryHeads);
  const AttentionGradients grads{view(d_qkv, 0, kQueryHeads), view(d_qkv, kQueryHeads, kKeyHeads),
                                 view(d_qkv, kQueryHeads + kKeyHeads, kKeyHeads)};
  double pairs = double(tokens) * double(tokens + 1) / 2;
  if (mean > 0) {
    const Documents docs = documents(tokens, mean);
    pairs = docs.pairs;
    in.cu_seqlens = from_ints(docs.ends, {int64_t(docs.ends.size())}, DType::i32, device);
    in.max_seqlen = docs.longest;
  }
  const auto started = Clock::now();
  attention(in, {}, out, lse);
  attention_backward(in, {}, out, lse, grad, grads);
  runtime.synchronize();
  const double first = since(started);
  const double flops = 4 * pairs * kQueryHeads * kHeadDim;
  const auto line = [&](const char* who, double forward, double backward) {
    std::printf("  %-6s forward %8.3f ms %6.1f TFLOP/s   backward %8.3f ms %6.1f TFLOP/s\n", who,
                forward * 1e3, flops / forward / 1e12, backward * 1e3,
                2.5 * flops / backward / 1e12);
  };
  std::printf(
      "%lld tokens, %lld sequences of up to %lld; first call %.2f s, workspace %lld and %lld\n",
      static_cast<long long>(tokens), static_cast<long long>(in.num_seqs()),
      static_cast<long long>(in.max_queries()), first,
      static_cast<long long>(attention_workspace_bytes(in, {}, out)),
      static_cast<long long>(attention_backward_workspace_bytes(in, {}, out, grad, grads)));
  line("cuDNN", time_of(runtime, [&] { attention(in, {}, out, lse); }),
       time_of(runtime, [&] { attention_backward(in, {}, out, lse, grad, grads); }));
  Tensor workspace = empty({own_attention_workspace_bytes(in, AttentionPass::backward)}, DType::u8,
                           device, Purpose::workspace);
  line("own", time_of(runtime, [&] { cuda::own_attention(in, {}, out, lse); }),
       time_of(runtime,
               [&] { cuda::own_attention_backward(in, {}, out, lse, grad, workspace, grads); }));
}

// Times what attention by products consists of, kind by kind.
class TimedDevice final : public ProductDevice {
 public:
  explicit TimedDevice(ProductDevice& device, cudaStream_t stream)
      : device_(device), stream_(stream) {}
  ~TimedDevice() override {
    for (const Piece& piece : pieces_) {
      (void)cudaEventDestroy(piece.begin);
      (void)cudaEventDestroy(piece.end);
    }
  }

  void multiply(const GemmProblem& p, uintptr_t a, uintptr_t b, uintptr_t c) override {
    const char* what = p.out == DType::f32 ? "scores, dp" : p.transpose_a ? "dk, dv" : "o, dq";
    time(what, p.flops(), [&] { device_.multiply(p, a, b, c); });
  }
  void copy_rows(const Extent& extent, const HeadRows& from, const HeadRows& to) override {
    time("copies", 0, [&] { device_.copy_rows(extent, from, to); });
  }
  void zero_rows(const Extent& extent, const HeadRows& at) override {
    time("copies", 0, [&] { device_.zero_rows(extent, at); });
  }
  void softmax(const ScoreBlock& block) override {
    time("softmax", 0, [&] { device_.softmax(block); });
  }
  void delta(const Extent& extent, const HeadRows& o, const HeadRows& d_o, const HeadRows& to,
             uintptr_t delta) override {
    time("delta", 0, [&] { device_.delta(extent, o, d_o, to, delta); });
  }
  void differentiate(const ScoreBlock& block, const Gradients& gradients) override {
    time("gradients", 0, [&] { device_.differentiate(block, gradients); });
  }

  void print(const char* pass) const {
    struct Sum {
      double ms = 0, flops = 0;
      int calls = 0;
    };
    std::map<std::string, Sum> sums;
    (void)cudaStreamSynchronize(stream_);
    for (const Piece& piece : pieces_) {
      float ms = 0;
      (void)cudaEventElapsedTime(&ms, piece.begin, piece.end);
      Sum& sum = sums[piece.what];
      sum.ms += double(ms), sum.flops += piece.flops, ++sum.calls;
    }
    std::printf("    %s:", pass);
    for (const auto& [what, sum] : sums)
      std::printf("  %s %d x %.3f ms (%.0f TFLOP/s)", what.c_str(), sum.calls, sum.ms / sum.calls,
                  sum.flops / sum.ms / 1e9);
    std::printf("\n");
  }

 private:
  struct Piece {
    const char* what;
    double flops;
    cudaEvent_t begin, end;
  };
  template <class F>
  void time(const char* what, double flops, F&& f) {
    Piece piece{.what = what, .flops = flops, .begin = nullptr, .end = nullptr};
    (void)cudaEventCreate(&piece.begin);
    (void)cudaEventCreate(&piece.end);
    (void)cudaEventRecord(piece.begin, stream_);
    f();
    (void)cudaEventRecord(piece.end, stream_);
    pieces_.push_back(piece);
  }

  ProductDevice& device_;
  cudaStream_t stream_;
  std::vector<Piece> pieces_;
};

void run_softcap(Runtime& runtime, int64_t s, int64_t n, int64_t g, int64_t d) {
  const Device device = runtime.device();
  const auto randn = [&](int64_t width) {
    Tensor x = empty({s, 1, width}, DType::bf16, device);
    fill_normal(x, whole_box(x), {.seed = 1, .site = uint64_t(width), .std = 1});
    return x;
  };
  const auto view = [d](const Tensor& x, int64_t first, int64_t count) {
    return heads_of(x, d, first, count);
  };
  const Tensor qkv = randn((n + 2 * g) * d), d_o = randn(n * d);
  const Tensor o = empty(d_o.shape(), DType::bf16, device);
  const Tensor d_qkv = empty(qkv.shape(), DType::bf16, device);
  Tensor lse = empty({1, n, s}, DType::f32, device);
  const AttentionInputs in{.q = view(qkv, 0, n), .k = view(qkv, n, g), .v = view(qkv, n + g, g)};
  const HeadView out = view(o, 0, n), grad = view(d_o, 0, n);
  const AttentionGradients grads{view(d_qkv, 0, n), view(d_qkv, n, g), view(d_qkv, n + g, g)};
  const AttentionOptions capped{.softcap = 50};
  const double flops = 4 * double(s) * double(s + 1) / 2 * double(n) * double(d);
  std::printf("sequence %lld, %lld heads of %lld, %lld of keys\n", static_cast<long long>(s),
              static_cast<long long>(n), static_cast<long long>(d), static_cast<long long>(g));
  const auto line = [&](const char* who, double forward, double backward) {
    std::printf("  %-18s forward %8.3f ms %6.1f TFLOP/s   backward %8.3f ms %6.1f TFLOP/s\n", who,
                forward * 1e3, flops / forward / 1e12, backward * 1e3,
                2.5 * flops / backward / 1e12);
  };
  line("cuDNN, no cap", time_of(runtime, [&] { attention(in, {}, out, lse); }),
       time_of(runtime, [&] { attention_backward(in, {}, out, lse, grad, grads); }));
  for (int64_t block : {256, 512, 1024}) {
    const ProductSizes sizes{.block = block};
    Tensor ahead = empty({product_workspace_bytes(in, AttentionPass::forward, sizes)}, DType::u8,
                         device, Purpose::workspace);
    Tensor back = empty({product_workspace_bytes(in, AttentionPass::backward, sizes)}, DType::u8,
                        device, Purpose::workspace);
    const std::string who = str_cat("capped, by ", block);
    line(who.c_str(),
         time_of(runtime, [&] { cuda::product_attention(in, capped, ahead, out, lse, sizes); }),
         time_of(runtime, [&] {
           cuda::product_attention_backward(in, capped, out, lse, grad, back, grads, sizes);
         }));
    const auto gpu = cuda::product_device(in, capped, lse);
    const auto stream = static_cast<cudaStream_t>(device.compute_stream());
    TimedDevice forward(*gpu, stream), backward(*gpu, stream);
    product_attention(forward, in, capped, out, reinterpret_cast<uintptr_t>(ahead.raw()), sizes);
    product_attention_backward(backward, in, capped, out, grad, grads,
                               reinterpret_cast<uintptr_t>(back.raw()), sizes);
    forward.print("forward");
    backward.print("backward");
  }
  Tensor own = empty({own_attention_workspace_bytes(in, AttentionPass::backward)}, DType::u8,
                     device, Purpose::workspace);
  line("capped, own", time_of(runtime, [&] { cuda::own_attention(in, capped, out, lse); }),
       time_of(runtime,
               [&] { cuda::own_attention_backward(in, capped, out, lse, grad, own, grads); }));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1 && std::strcmp(argv[1], "softcap") == 0) {
    std::vector<int64_t> sequences;
    for (int i = 2; i < argc; ++i) sequences.push_back(std::atoll(argv[i]));
    if (sequences.empty()) sequences = {512, 1024, 4096, 8192};
    Runtime runtime({.kind = DeviceKind::cuda});
    for (int64_t s : sequences) run_softcap(runtime, s, 16, 8, 256);
    run_softcap(runtime, 4096, 32, 8, 128);
    run_softcap(runtime, 4096, 32, 8, 64);
    return 0;
  }
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 16384;
  std::vector<int64_t> means;
  for (int i = 2; i < argc; ++i) means.push_back(std::atoll(argv[i]));
  if (means.empty()) means = {0, 8192, 2048, 512, 128};
  Runtime runtime({.kind = DeviceKind::cuda});
  for (int64_t mean : means) run(runtime, tokens, mean);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
