// Attention by products against the CPU kernel in f64: the schedule on a device that is a few loops
// on the host, and on the GPU.
#include "phalanx/kernels/attention_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/kernels/attention_use.h"
#include "phalanx/ops/attention.h"
#ifdef PHX_HAVE_CUDA
#include "phalanx/kernels/cuda/attention_own.h"
#endif
#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

struct Case {
  int64_t sq, sk, b, n, g, d, dv;
  AttentionOptions options;
};

// Caps that bend: scores have a standard deviation of 1, or of 4 where the scale says so.
std::vector<Case> cases(int64_t block, int64_t d, int64_t dv) {
  const double four = 4 / std::sqrt(double(d));
  const int64_t one = block, two = 2 * block, three = 3 * block;
  return {
      {one + 11, one + 11, 2, 4, 2, d, d, {.softcap = 1.5}},              // shared keys
      {one + 1, one + 1, 1, 2, 2, d, dv, {.scale = four, .softcap = 5}},  // a block of one query
      {two + 10, two + 10, 1, 4, 1, d, d, {.window_left = int(block / 2), .softcap = 1.5}},
      {two + 10, two + 10, 1, 2, 1, d, dv, {.window_left = 0, .softcap = 2}},  // itself only
      {one + 3, one + 3, 1, 2, 1, d, d, {.causal = false, .softcap = 1.5}},
      {one + 9, one + 9, 1, 2, 2, d, d, {.causal = false, .window_left = 13, .softcap = 2}},
      {9, two + 3, 2, 4, 2, d, d, {.softcap = 1.5}},                              // the last ones
      {one + 1, three + 9, 1, 2, 1, d, dv, {.window_left = 13, .softcap = 1.5}},  // unseen keys
      {1, 9, 1, 2, 1, d, d, {.softcap = 1.5}},
  };
}

struct Tensors {
  Tensor q, kv, d_o, o, lse, dq, dkv;
};

// q and do are tensors of their own, k and v two views of one.
class Computed {
 public:
  // Values of `rounded` in `dtype`, on `device`.
  Computed(const Case& of, DType rounded, DType dtype, Device device) : of_(of) {
    const auto made = [&](Shape shape, Seed seed) {
      const Tensor x = randn(shape, seed, rounded);
      return from_values(to_values(x), shape, dtype, device);
    };
    const int64_t wide = of.g * (of.d + of.dv);
    t_.q = made({of.sq, of.b, of.n * of.d}, Seed{1});
    t_.kv = made({of.sk, of.b, wide}, Seed{2});
    t_.d_o = made({of.sq, of.b, of.n * of.dv}, Seed{3});
    t_.o = empty(t_.d_o.shape(), dtype, device);
    t_.lse = empty({of.b, of.n, of.sq}, acc_dtype(dtype), device);
    // What is not written shows.
    t_.dq = made({of.sq, of.b, of.n * of.d}, Seed{4});
    t_.dkv = made({of.sk, of.b, wide}, Seed{5});
  }

  AttentionInputs inputs() const { return {.q = queries(t_.q), .k = k(t_.kv), .v = v(t_.kv)}; }
  HeadView o() const { return queries(t_.o); }
  HeadView d_o() const { return queries(t_.d_o); }
  AttentionGradients gradients() const { return {queries(t_.dq), k(t_.dkv), v(t_.dkv)}; }
  Tensors& tensors() { return t_; }
  const AttentionOptions& options() const { return of_.options; }

  void by_the_front() {
    attention(inputs(), of_.options, o(), t_.lse);
    attention_backward(inputs(), of_.options, o(), t_.lse, d_o(), gradients());
  }

 private:
  HeadView queries(const Tensor& x) const { return heads_of(x, x.dim(2) / of_.n, 0, of_.n); }
  HeadView k(const Tensor& x) const {
    HeadView view = heads_of(x, of_.g * (of_.d + of_.dv), 0, 1);
    view.n = of_.g, view.d = view.stride_n = of_.d;
    return view;
  }
  HeadView v(const Tensor& x) const {
    HeadView view = k(x);
    view.offset = of_.g * of_.d, view.d = view.stride_n = of_.dv;
    return view;
  }

  Case of_;
  Tensors t_;
};

// Weights, their gradients and outputs are rounded once each to `dtype`: 2^-9 in bf16, 2^-12 in
// f16, of which about two add up. do . o has o's rounding besides. lse is f32 throughout.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 1.5e-2 : 2e-3; }

void expect_matches_f64(Computed& found, const Case& of, DType dtype) {
  SCOPED_TRACE(::testing::Message()
               << of.sq << " x " << of.sk << ", n " << of.n << ", g " << of.g << ", d " << of.d
               << " / " << of.dv << ", causal " << of.options.causal << ", window "
               << of.options.window_left << ", " << dtype);
  Computed expected(of, dtype, DType::f64, test_device());
  expected.by_the_front();
  const auto compare = [&](const char* name, const Tensor& a, const Tensor& b, double allowed,
                           double floor = 0) {
    SCOPED_TRACE(name);
    const Tensor wide = from_values(to_values(a), a.shape(), DType::f64, test_device());
    expect_close(wide, b, allowed, floor);
  };
  // A query that sees only itself has the weight 1 whatever its score is: dp and do . o are the
  // same sum of dv products, whose f32 additions come in two orders. Normal numbers are below 5.
  const double scale = of.options.scale > 0 ? of.options.scale : 1 / std::sqrt(double(of.d));
  const double cancelled = double(of.dv) * 0x1p-24 * (5 * 5) * scale * 5;
  Tensors &a = found.tensors(), &b = expected.tensors();
  compare("o", a.o, b.o, tolerance(dtype));
  compare("lse", a.lse, b.lse, 1e-5);
  compare("dq", a.dq, b.dq, tolerance(dtype), cancelled);
  // k and v apart: one may be much larger.
  const auto part = [&](const Tensor& x, int64_t begin, int64_t count) {
    const std::vector<double> values = to_values(x);
    std::vector<double> cut;
    for (int64_t row = 0; row < x.dim(0) * x.dim(1); ++row)
      for (int64_t c = begin; c < begin + count; ++c)
        cut.push_back(values[size_t(row * x.dim(2) + c)]);
    return from_values(cut, {x.dim(0), x.dim(1), count}, DType::f64, test_device());
  };
  compare("dk", part(a.dkv, 0, of.g * of.d), part(b.dkv, 0, of.g * of.d), tolerance(dtype),
          cancelled);
  compare("dv", part(a.dkv, of.g * of.d, of.g * of.dv), part(b.dkv, of.g * of.d, of.g * of.dv),
          tolerance(dtype));
}

// What a device is to do, as plainly as it can be said; f16 operands.
class Host final : public ProductDevice {
 public:
  Host(const AttentionInputs& in, const AttentionOptions& options, float* lse)
      : sq_(in.q.s),
        shift_(in.k.s - in.q.s),
        scale_(attention_scale(in, options)),
        options_(options),
        lse_(lse) {}

  void multiply(const GemmProblem& p, uintptr_t a, uintptr_t b, uintptr_t c) override {
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      const f16* x = at<f16>(a) + batch * p.layout_a.matrix;
      const f16* y = at<f16>(b) + batch * p.layout_b.matrix;
      for (int64_t i = 0; i < p.m; ++i) {
        std::vector<float> row(size_t(p.n), 0.f);
        for (int64_t k = 0; k < p.k; ++k) {
          const float left =
              float(x[p.transpose_a ? k * p.layout_a.row + i : i * p.layout_a.row + k]);
          if (left == 0.f) continue;
          for (int64_t j = 0; j < p.n; ++j)
            row[size_t(j)] +=
                left * float(y[p.transpose_b ? j * p.layout_b.row + k : k * p.layout_b.row + j]);
        }
        const int64_t to = batch * p.layout_c.matrix + i * p.layout_c.row;
        for (int64_t j = 0; j < p.n; ++j) {
          if (p.out == DType::f32)
            at<float>(c)[to + j] = row[size_t(j)];
          else
            at<f16>(c)[to + j] = f16(row[size_t(j)]);
        }
      }
    }
  }
  void copy_rows(const Extent& extent, const HeadRows& from, const HeadRows& to) override {
    each(extent, [&](int64_t row, int64_t key_head, int64_t head, int64_t c) {
      element(to, row, key_head, head)[c] = element(from, row, key_head, head)[c];
    });
  }
  void zero_rows(const Extent& extent, const HeadRows& to) override {
    ++zeroed;
    each(extent, [&](int64_t row, int64_t key_head, int64_t head, int64_t c) {
      element(to, row, key_head, head)[c] = f16(0.f);
    });
  }
  void delta(const Extent& extent, const HeadRows& o, const HeadRows& d_o, const HeadRows& to,
             uintptr_t delta) override {
    for (int64_t i = 0; i < extent.rows * extent.key_heads * extent.group; ++i)
      at<float>(delta)[i] = 0.f;
    each(extent, [&](int64_t row, int64_t key_head, int64_t head, int64_t c) {
      at<float>(delta)[(key_head * extent.rows + row) * extent.group + head] +=
          float(element(o, row, key_head, head)[c]) * float(element(d_o, row, key_head, head)[c]);
      if (to.at != 0) element(to, row, key_head, head)[c] = element(d_o, row, key_head, head)[c];
    });
  }
  void softmax(const ScoreBlock& block) override {
    each_row(block, [&](int64_t key_head, int64_t query, int64_t head, float* scores) {
      std::vector<double> weights(size_t(block.row), 0.0);
      double sum = 0;
      for (int64_t j = 0; j < block.keys; ++j) {
        if (!sees(query, block.first_key + j)) continue;
        weights[size_t(j)] = std::exp(options_.softcap * bent(scores[j]));
        sum += weights[size_t(j)];
      }
      lse_of(block, key_head, head, query) = float(std::log(sum));
      f16* out = reinterpret_cast<f16*>(scores);
      for (int64_t j = 0; j < block.row; ++j) out[j] = f16(float(weights[size_t(j)] / sum));
    });
  }
  void differentiate(const ScoreBlock& block, const Gradients& gradients) override {
    each_row(block, [&](int64_t key_head, int64_t query, int64_t head, float* scores) {
      const int64_t offset = scores - at<float>(block.scores);
      const int64_t whole = (key_head * sq_ + query) * block.group + head;
      const double delta = at<float>(gradients.delta)[whole];
      for (int64_t j = 0; j < block.row; ++j) {
        double weight = 0, ds = 0;
        if (j < block.keys && sees(query, block.first_key + j)) {
          const double t = bent(scores[j]);
          weight = std::exp(options_.softcap * t - lse_of(block, key_head, head, query));
          ds = weight * (at<float>(gradients.dp)[offset + j] - delta) * (1 - t * t) * scale_;
        }
        at<f16>(gradients.weights)[offset + j] = f16(float(weight));
        at<f16>(gradients.ds)[whole * gradients.ds_row + block.first_key + j] = f16(float(ds));
      }
    });
  }

  int zeroed = 0;

 private:
  template <class T>
  static T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
  }
  static f16* element(const HeadRows& x, int64_t row, int64_t key_head, int64_t head) {
    return at<f16>(x.at) + row * x.stride_s + key_head * x.stride_g + head * x.stride_h;
  }
  template <class F>
  static void each(const Extent& of, F&& f) {
    for (int64_t row = 0; row < of.rows; ++row)
      for (int64_t key_head = 0; key_head < of.key_heads; ++key_head)
        for (int64_t head = 0; head < of.group; ++head)
          for (int64_t c = 0; c < of.d; ++c) f(row, key_head, head, c);
  }
  template <class F>
  static void each_row(const ScoreBlock& block, F&& f) {
    for (int64_t key_head = 0; key_head < block.key_heads; ++key_head)
      for (int64_t row = 0; row < block.rows(); ++row)
        f(key_head, block.first_query + row / block.group, row % block.group,
          at<float>(block.scores) + (key_head * block.rows() + row) * block.row);
  }
  bool sees(int64_t query, int64_t key) const {
    const int64_t position = query + shift_;
    return (!options_.causal || key <= position) &&
           (options_.window_left < 0 || key >= position - options_.window_left);
  }
  double bent(float score) const { return std::tanh(score * scale_ / options_.softcap); }
  float& lse_of(const ScoreBlock& block, int64_t key_head, int64_t head, int64_t query) const {
    return lse_[(block.lse_head + key_head * block.group + head) * sq_ + query];
  }

  int64_t sq_, shift_;
  double scale_;
  AttentionOptions options_;
  float* lse_;
};

// Returns how many blocks of keys nobody saw.
int run_on_host(Computed& run, const ProductSizes& sizes) {
  const AttentionInputs in = run.inputs();
  Host host(in, run.options(), run.tensors().lse.data<float>());
  const auto room = [&](AttentionPass pass) {
    return empty({product_workspace_bytes(in, pass, sizes)}, DType::u8, test_device());
  };
  const Tensor ahead = room(AttentionPass::forward), back = room(AttentionPass::backward);
  product_attention(host, in, run.options(), run.o(), reinterpret_cast<uintptr_t>(ahead.raw()),
                    sizes);
  product_attention_backward(host, in, run.options(), run.o(), run.d_o(), run.gradients(),
                             reinterpret_cast<uintptr_t>(back.raw()), sizes);
  return host.zeroed;
}

TEST(AttentionProducts, ScheduleMatchesCpu) {
  constexpr int64_t kBlock = 64;
  for (const Case& of : cases(kBlock, 16, 8)) {
    Computed run(of, DType::f16, DType::f16, test_device());
    const int unseen = run_on_host(run, {.block = kBlock});
    EXPECT_EQ(unseen > 0, of.sk == 3 * kBlock + 9);
    expect_matches_f64(run, of, DType::f16);
  }
}

// As many bytes as some of the key heads need.
ProductSizes sizes_for(const AttentionInputs& in, int64_t key_heads) {
  AttentionInputs some = in;
  some.q.n = in.q.n / in.k.n * key_heads;
  some.k.n = some.v.n = key_heads;
  ProductSizes sizes{.block = 64};
  sizes.bytes = product_workspace_bytes(some, AttentionPass::backward, sizes);
  return sizes;
}

const Case kFourKeyHeads{130, 130, 2, 8, 4, 64, 64, {.softcap = 1.5}};

TEST(AttentionProducts, ScheduleInPartsMatchesCpu) {
  for (int64_t key_heads : {1, 2}) {
    Computed run(kFourKeyHeads, DType::f16, DType::f16, test_device());
    const ProductSizes sizes = sizes_for(run.inputs(), key_heads);
    EXPECT_EQ(product_key_heads(run.inputs(), AttentionPass::backward, sizes), key_heads);
    run_on_host(run, sizes);
    expect_matches_f64(run, kFourKeyHeads, DType::f16);
  }
}

AttentionInputs gemma(int64_t s, Device device, DType dtype = DType::bf16) {
  const Tensor qkv = empty({s, 1, 32 * 256}, dtype, device);
  return {.q = heads_of(qkv, 256, 0, 16),
          .k = heads_of(qkv, 256, 16, 8),
          .v = heads_of(qkv, 256, 24, 8)};
}

TEST(AttentionProducts, AllHeadsOfAGemmaLayerAreComputedAtOnce) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  constexpr AttentionPass kBackward = AttentionPass::backward;
  EXPECT_EQ(product_key_heads(gemma(4096, meta.device()), kBackward), 8);
  EXPECT_EQ(product_key_heads(gemma(8192, meta.device()), kBackward), 4);
  EXPECT_LE(product_workspace_bytes(gemma(8192, meta.device()), kBackward), ProductSizes{}.bytes);
  EXPECT_EQ(product_key_heads(gemma(32768, meta.device()), kBackward), 0);
}

TEST(AttentionProducts, ServeSoftCapsOnTheGpu) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const AttentionOptions capped{.softcap = 50};
  const auto who = [&](const AttentionInputs& in, const AttentionOptions& options) {
    const std::string forward = attention_backend_name(in, options, AttentionPass::forward);
    EXPECT_EQ(forward, attention_backend_name(in, options, AttentionPass::backward));
    return forward;
  };
  const AttentionInputs in = gemma(4096, meta.device());
  EXPECT_EQ(who(in, capped), "products");
  EXPECT_EQ(who(in, {}), "cuDNN");
  EXPECT_EQ(who(in, {.softcap = 50, .dropout = 0.1}), "own");
  EXPECT_EQ(who(gemma(4096, meta.device(), DType::f32), capped), "own");
  EXPECT_EQ(who(gemma(256, meta.device()), capped), "own");
  EXPECT_EQ(who(gemma(32768, meta.device()), capped), "own");
  AttentionInputs packed = in;
  packed.cu_seqlens = empty({3}, DType::i32, meta.device());
  packed.max_seqlen = 4096;
  EXPECT_EQ(who(packed, capped), "own");
}

TEST(AttentionProducts, AreToldAndTuned) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const AttentionInputs in = gemma(1024, meta.device());
  const AttentionOptions capped{.softcap = 50};
  const Tensor o = empty({1024, 1, 16 * 256}, DType::bf16, meta.device());
  Tensor lse = empty({1, 16, 1024}, DType::f32, meta.device());
  const HeadView out = heads_of(o, 256, 0, 16);
  attention(in, capped, out, lse);
  attention_backward(in, capped, out, lse, out, {in.q, in.k, in.v});
  for (const AttentionUse::Line& line : meta.extension<AttentionUse>().lines()) {
    EXPECT_THAT(line.text, HasSubstr("matrix products"));
    EXPECT_THAT(line.text, HasSubstr("cuDNN has no backward with a soft cap"));
    EXPECT_FALSE(line.slow);
  }
  EXPECT_EQ(meta.extension<AttentionUse>().lines().size(), 2u);
  double flops = 0;
  for (const GemmProblem& product : meta.extension<GemmUse>().seen) {
    EXPECT_EQ(product.batch, 8);
    EXPECT_GE(product.align_a, 256u);
    flops += product.flops();
  }
  // 3 of 4 blocks of 512 x 512 scores are computed, by 7 products. In the backward q k^T and do v^T
  // are the same problem (3 blocks), and so is the second half's q k^T in the forward's first.
  EXPECT_EQ(flops, (7 * 3 - 3 - 1) * 2.0 * 256 * 16 * 512 * 512);
}

#ifdef PHX_HAVE_CUDA
void run_on_gpu(Computed& run, const ProductSizes& sizes) {
  const AttentionInputs in = run.inputs();
  const auto room = [&](AttentionPass pass) {
    return empty({product_workspace_bytes(in, pass, sizes)}, DType::u8, in.q.device());
  };
  Tensor ahead = room(AttentionPass::forward), back = room(AttentionPass::backward);
  cuda::product_attention(in, run.options(), ahead, run.o(), run.tensors().lse, sizes);
  cuda::product_attention_backward(in, run.options(), run.o(), run.tensors().lse, run.d_o(), back,
                                   run.gradients(), sizes);
}

void expect_cuda_matches(int64_t block, int64_t d, int64_t dv, DType dtype) {
  for (const Case& of : cases(block, d, dv)) {
    Computed run(of, dtype, dtype, cuda_test_runtime().device());
    run_on_gpu(run, {.block = block});
    expect_matches_f64(run, of, dtype);
  }
}

PHX_CUDA_TEST(AttentionProducts, CudaMatchesCpuInSmallBlocks) {
  for (DType dtype : {DType::bf16, DType::f16})
    for (const auto& [d, dv] : {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256)})
      expect_cuda_matches(64, d, dv, dtype);
}
PHX_CUDA_TEST(AttentionProducts, CudaMatchesCpuBf16Head256) {
  expect_cuda_matches(kProductBlock, 256, 256, DType::bf16);
}
PHX_CUDA_TEST(AttentionProducts, CudaMatchesCpuF16Head64) {
  expect_cuda_matches(kProductBlock, 64, 64, DType::f16);
}

PHX_CUDA_TEST(AttentionProducts, CudaInPartsMatchesCpu) {
  for (int64_t key_heads : {1, 2}) {
    Computed run(kFourKeyHeads, DType::bf16, DType::bf16, cuda_test_runtime().device());
    run_on_gpu(run, sizes_for(run.inputs(), key_heads));
    expect_matches_f64(run, kFourKeyHeads, DType::bf16);
  }
}

// Rows of more than 1024, 2048 and 4096 keys take wider kernels.
PHX_CUDA_TEST(AttentionProducts, CudaMatchesCpuOnLongRows) {
  for (int64_t s : {1500, 3000, 5000, 9000}) {
    const Case of{64, s, 1, 2, 1, 64, 64, {.softcap = 1.5}};
    Computed run(of, DType::bf16, DType::bf16, cuda_test_runtime().device());
    run_on_gpu(run, {});
    expect_matches_f64(run, of, DType::bf16);
  }
}

// Scores of up to 100 beyond a cap of 50, as a wild model has them.
PHX_CUDA_TEST(AttentionProducts, CudaMatchesCpuFarBeyondTheCap) {
  const Case of{600, 600, 1, 2, 1, 64, 64, {.scale = 3, .softcap = 50}};
  Computed run(of, DType::f16, DType::f16, cuda_test_runtime().device());
  run_on_gpu(run, {});
  Computed expected(of, DType::f16, DType::f64, test_device());
  expected.by_the_front();
  const Tensor lse =
      from_values(to_values(run.tensors().lse), {1, 2, 600}, DType::f64, test_device());
  expect_close(lse, expected.tensors().lse, 1e-5);
  for (const Tensor& x : {run.tensors().dq, run.tensors().dkv})
    for (double value : to_values(x)) ASSERT_TRUE(std::isfinite(value));
}

PHX_CUDA_TEST(AttentionProducts, CudaTakesThemByItselfAndGivesTheSameBytesTwice) {
  const Case of{1100, 1100, 1, 4, 2, 128, 128, {.softcap = 1.5}};
  std::vector<std::vector<double>> gradients;
  for (int i = 0; i < 2; ++i) {
    Computed run(of, DType::bf16, DType::bf16, cuda_test_runtime().device());
    EXPECT_STREQ(attention_backend_name(run.inputs(), of.options, AttentionPass::backward),
                 "products");
    run.by_the_front();
    expect_matches_f64(run, of, DType::bf16);
    gradients.push_back(to_values(run.tensors().dkv));
    gradients.push_back(to_values(run.tensors().dq));
  }
  EXPECT_EQ(gradients[0], gradients[2]);
  EXPECT_EQ(gradients[1], gradients[3]);
}

PHX_CUDA_TEST(AttentionProducts, MetaAllocatesLikeCuda) {
  const auto memory = [](const RuntimeOptions& options) {
    Runtime runtime(options);
    const Tensor qkv = zeros({1100, 2, 8 * 64}, DType::bf16, runtime.device());
    gradients_of(
        [](std::span<const Tensor> in) {
          return phx::attention(in[0], {4, 2, 64}, {.softcap = 5});
        },
        std::vector<Tensor>{qkv});
    return runtime.allocator().report();
  };
  const MemoryReport a = memory({.kind = DeviceKind::cuda});
  const MemoryReport b = memory({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  EXPECT_EQ(a.peak_total, b.peak_total);
  for (int i = 0; i < kNumPurposes; ++i)
    EXPECT_EQ(a.peak[i], b.peak[i]) << "peak of " << name(static_cast<Purpose>(i));
}
#endif

}  // namespace
}  // namespace phx::kernels
