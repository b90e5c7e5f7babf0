#include "phalanx/kernels/cuda/attention_trust.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "phalanx/base/log.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/small_float.h"
#include "phalanx/kernels/cuda/attention_own.h"

namespace phx::kernels::cuda {

namespace {

// A long causal sequence is tested in its last rows only: they see every key, and nothing behind
// them sees theirs.
constexpr int64_t kTestedRows = 2048;

// Both sides round the weights, their gradients and the result once to 16 bits: 2^-9 each in bf16,
// of which a norm over many elements keeps about 3e-3 to 5e-3 in all. Wrong plans were off by 0.4
// and more.
double tolerance(DType dtype) { return dtype == DType::bf16 ? 3e-2 : 6e-3; }

// The query heads of one key head, in one sequence (or all packed ones), from a row on.
struct Part {
  int64_t sequence = 0, key_head = 0, first_row = 0, rows = 0;
};

HeadView cut(const HeadView& x, int64_t sequence, int64_t first_head, int64_t heads,
             int64_t first_row) {
  HeadView part = x;
  part.offset += sequence * x.stride_b + first_head * x.stride_n + first_row * x.stride_s;
  part.b = 1;
  part.n = heads;
  part.s = x.s - first_row;
  return part;
}

class Problem {
 public:
  Problem(const AttentionInputs& in, const Part& part, Runtime& scratch)
      : part_(part),
        group_(in.q.n / in.k.n),
        heads_(in.q.n),
        rows_of_all_(in.q.s),
        scratch_(scratch) {
    inputs = in;
    inputs.q = queries(in.q);
    inputs.k = keys(in.k, 0);
    inputs.v = keys(in.v, 0);
  }

  HeadView queries(const HeadView& x) const {
    return cut(x, part_.sequence, part_.key_head * group_, group_, part_.first_row);
  }
  HeadView keys(const HeadView& x, int64_t first_row) const {
    return cut(x, part_.sequence, part_.key_head, 1, first_row);
  }
  // The rows of lse [b, n, s] that belong to the queries.
  Tensor rows_of(const Tensor& lse) const {
    Tensor cut = empty({1, group_, part_.rows}, DType::f32, scratch_.device());
    const float* from = lse.data<float>() +
                        (part_.sequence * heads_ + part_.key_head * group_) * rows_of_all_ +
                        part_.first_row;
    PHX_CUDA_CHECK(cudaMemcpy2DAsync(cut.raw(), size_t(part_.rows) * 4, from,
                                     size_t(rows_of_all_) * 4, size_t(part_.rows) * 4,
                                     size_t(group_), cudaMemcpyDeviceToDevice,
                                     static_cast<cudaStream_t>(lse.device().compute_stream())));
    return cut;
  }
  HeadView room_like(const HeadView& x) const {
    return heads_of(empty({x.s, 1, x.n * x.d}, x.dtype(), scratch_.device()), x.d, 0, x.n);
  }
  Tensor room_for_lse() const {
    return empty({1, group_, part_.rows}, DType::f32, scratch_.device());
  }
  Tensor room_for_work() const {
    return empty({own_attention_workspace_bytes(inputs, AttentionPass::backward)}, DType::u8,
                 scratch_.device());
  }

  AttentionInputs inputs;

 private:
  Part part_;
  int64_t group_, heads_, rows_of_all_;
  Runtime& scratch_;
};

std::vector<Part> parts_to_test(const AttentionInputs& in, const AttentionOptions& options) {
  const bool tail = options.causal && !in.packed() && in.q.s > kTestedRows;
  const int64_t rows = tail ? kTestedRows : in.q.s;
  std::vector<Part> parts = {{0, 0, in.q.s - rows, rows}};
  if (in.q.b > 1 || in.k.n > 1) parts.push_back({in.q.b - 1, in.k.n - 1, in.q.s - rows, rows});
  return parts;
}

// The values of a view, [heads, rows, d]. The device has computed them.
std::vector<float> values_of(const HeadView& x) {
  std::vector<uint16_t> bits(size_t(x.s * x.n * x.d));
  const size_t width = size_t(x.d) * 2;
  const auto* from = static_cast<const std::byte*>(x.base.raw()) + x.offset * 2;
  for (int64_t head = 0; head < x.n; ++head)
    PHX_CUDA_CHECK(cudaMemcpy2D(bits.data() + head * x.s * x.d, width, from + head * x.stride_n * 2,
                                size_t(x.stride_s) * 2, width, size_t(x.s),
                                cudaMemcpyDeviceToHost));
  std::vector<float> values(bits.size());
  std::ranges::transform(bits, values.begin(), [&](uint16_t b) {
    return x.dtype() == DType::bf16 ? float(std::bit_cast<bf16>(b)) : float(std::bit_cast<f16>(b));
  });
  return values;
}

std::vector<float> values_of(const Tensor& x) {
  std::vector<float> values(size_t(x.numel()));
  PHX_CUDA_CHECK(cudaMemcpy(values.data(), x.raw(), size_t(x.bytes()), cudaMemcpyDeviceToHost));
  return values;
}

double sum_of_squares(const std::vector<float>& x) {
  double sum = 0;
  for (float value : x) sum += double(value) * value;
  return sum;
}
double root_mean_square(const std::vector<float>& x) {
  return std::sqrt(sum_of_squares(x) / double(x.size()));
}

// |a - b| / |b|, or / `floor` if that is larger. No answer where b is not finite, or all is zero:
// such inputs tell nothing. What f16 cannot resolve (2^-24) does not count.
constexpr double kNoAnswer = -1;
double distance(const std::vector<float>& a, const std::vector<float>& b, DType dtype,
                double floor = 0) {
  double apart = 0;
  for (size_t i = 0; i < a.size(); ++i) apart += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  const double size = std::max(sum_of_squares(b), floor * floor);
  if (!std::isfinite(size) || size == 0) return kNoAnswer;
  if (!std::isfinite(apart)) return std::numeric_limits<double>::infinity();
  const double smallest = dtype == DType::f16 ? std::ldexp(1.0, -23) : 0;
  return std::sqrt(std::max(0.0, apart - double(a.size()) * smallest * smallest) / size);
}

// A score's gradient is the difference of do . v and do . o, where o was rounded to 16 bits. Where
// the two are equal (a query that sees one key) nothing but that rounding is left, so dq and dk
// are judged against 2^-7 of what their sums would be without the difference.
double rounding_floor(const Problem& problem, const HeadView& d_o, double scale,
                      const std::vector<float>& other, size_t elements) {
  const HeadView& v = problem.inputs.v;
  const double dp =
      root_mean_square(values_of(d_o)) * root_mean_square(values_of(v)) * std::sqrt(double(v.d));
  return std::ldexp(scale * dp * root_mean_square(other) * std::sqrt(double(elements)), -7);
}

std::unique_ptr<Runtime> scratch_beside(const Runtime& runtime) {
  // Memory of its own, so that the step's plan of allocations does not see the test.
  return std::make_unique<Runtime>(
      RuntimeOptions{.kind = DeviceKind::cuda, .cuda_ordinal = runtime.options().cuda_ordinal});
}

}  // namespace

std::string AttentionKind::text() const {
  return str_cat("the ", pass == AttentionPass::forward ? "forward" : "backward", " of ",
                 packed ? "packed " : "", "attention (", dtype, ", heads of ", d,
                 dv != d ? str_cat(" and ", dv) : "", shared ? ", shared key heads" : "",
                 causal ? ", causal" : "", windowed ? ", windowed" : "",
                 deterministic ? ", deterministic" : "", ")");
}

AttentionKind attention_kind(const AttentionInputs& in, const AttentionOptions& options,
                             AttentionPass pass) {
  return {
      .pass = pass,
      .dtype = in.q.dtype(),
      .d = in.q.d,
      .dv = in.v.d,
      .packed = in.packed(),
      .shared = in.q.n != in.k.n,
      .causal = options.causal,
      .windowed = options.window_left >= 0,
      .deterministic = pass == AttentionPass::backward && in.q.device().runtime().deterministic()};
}

std::string cudnn_version_text(int64_t version) {
  return str_cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

const char* known_cudnn_fault(int64_t version, const AttentionKind& kind) {
  const bool backward = kind.pass == AttentionPass::backward;
  // Seen with 9.14.0; right with 9.19.0; the versions between were not tried.
  if (version < 91900 && backward && kind.packed && kind.d > 128 && kind.d == kind.dv)
    return "before 9.19 its gradients of packed heads beyond 128 are wrong";
  return nullptr;
}

bool AttentionTrust::trusts(const AttentionKind& kind) {
  if (runtime_.options().cudnn_attention == CudnnUse::off || wrong_.contains(kind)) return false;
  const int64_t version = cudnn_version();
  const char* fault = known_cudnn_fault(version, kind);
  if (fault == nullptr) return true;
  if (told_.insert(kind).second)
    log_warning(str_cat("cuDNN ", cudnn_version_text(version), " is not used for ", kind.text(),
                        ": ", fault, ". Our own kernels are several times slower",
                        "\n  hint: install cuDNN 9.19 or newer, or put its folder first in "
                        "LD_LIBRARY_PATH"));
  return false;
}

AttentionTrust::Verdict AttentionTrust::judge(const AttentionKind& kind, double worst,
                                              const char* tensor) {
  if (worst == kNoAnswer) return Verdict::unknown;
  if (worst <= tolerance(kind.dtype)) return Verdict::right;
  wrong_.insert(kind);
  log_warning(str_cat("cuDNN ", cudnn_version_text(cudnn_version()), " computes ", kind.text(),
                      " wrongly: ", tensor, " is ", worst, " of its size away from what our own ",
                      "kernels compute, where ", tolerance(kind.dtype),
                      " is allowed. Our own kernels, several times slower, take over",
                      "\n  hint: install another version of cuDNN"));
  return Verdict::wrong;
}

AttentionTrust::Verdict AttentionTrust::test(const AttentionInputs& in,
                                             const AttentionOptions& options, const HeadView& o,
                                             const Tensor& lse) {
  const AttentionKind kind = attention_kind(in, options, AttentionPass::forward);
  const auto scratch = scratch_beside(runtime_);
  Verdict verdict = Verdict::right;
  for (const Part& part : parts_to_test(in, options)) {
    const Problem problem(in, part, *scratch);
    const HeadView expected = problem.room_like(problem.queries(o));
    Tensor expected_lse = problem.room_for_lse();
    own_attention(problem.inputs, options, expected, expected_lse);
    const Tensor rows = problem.rows_of(lse);
    runtime_.synchronize();
    const double of_o = distance(values_of(problem.queries(o)), values_of(expected), kind.dtype);
    const double of_lse = distance(values_of(rows), values_of(expected_lse), kind.dtype);
    for (const auto& [worst, tensor] : {std::pair(of_o, "o"), std::pair(of_lse, "lse")}) {
      verdict = std::max(verdict, judge(kind, worst, tensor));
      if (verdict == Verdict::wrong) return verdict;
    }
  }
  return verdict;
}

AttentionTrust::Verdict AttentionTrust::test_backward(const AttentionInputs& in,
                                                      const AttentionOptions& options,
                                                      const HeadView& o, const Tensor& lse,
                                                      const HeadView& d_o,
                                                      const AttentionGradients& grads) {
  const AttentionKind kind = attention_kind(in, options, AttentionPass::backward);
  const auto scratch = scratch_beside(runtime_);
  Verdict verdict = Verdict::right;
  for (const Part& part : parts_to_test(in, options)) {
    Problem problem(in, part, *scratch);
    const Tensor rows = problem.rows_of(lse);
    const auto compute = [&] {
      const AttentionGradients expected{problem.room_like(problem.inputs.q),
                                        problem.room_like(problem.inputs.k),
                                        problem.room_like(problem.inputs.v)};
      Tensor work = problem.room_for_work();
      own_attention_backward(problem.inputs, options, problem.queries(o), rows,
                             problem.queries(d_o), work, expected);
      runtime_.synchronize();
      return expected;
    };
    AttentionGradients expected = compute();
    const double scale = attention_scale(in, options);
    const auto floor = [&](const HeadView& other, const std::vector<float>& x) {
      return rounding_floor(problem, problem.queries(d_o), scale, values_of(other), x.size());
    };
    const std::vector<float> dq = values_of(problem.queries(grads.dq));
    const double of_dq =
        distance(dq, values_of(expected.dq), kind.dtype, floor(problem.inputs.k, dq));
    // The last keys of a causal sequence are seen by the last queries alone.
    if (part.first_row > 0) {
      problem.inputs.k = problem.keys(in.k, part.first_row);
      problem.inputs.v = problem.keys(in.v, part.first_row);
      expected = compute();
    }
    const std::vector<float> dk = values_of(problem.keys(grads.dk, part.first_row));
    const double of_dk =
        distance(dk, values_of(expected.dk), kind.dtype, floor(problem.inputs.q, dk));
    const double of_dv = distance(values_of(problem.keys(grads.dv, part.first_row)),
                                  values_of(expected.dv), kind.dtype);
    for (const auto& [worst, tensor] :
         {std::pair(of_dq, "dq"), std::pair(of_dk, "dk"), std::pair(of_dv, "dv")}) {
      verdict = std::max(verdict, judge(kind, worst, tensor));
      if (verdict == Verdict::wrong) return verdict;
    }
  }
  return verdict;
}

}  // namespace phx::kernels::cuda
