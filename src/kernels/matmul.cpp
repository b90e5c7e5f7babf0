#include "phalanx/kernels/matmul.h"

#include "phalanx/kernels/matmul_blocks.h"

namespace phx::kernels {

namespace {

struct MatmulWorkspace {
  static constexpr int64_t kBytes = int64_t{32} << 20;  // as CublasLt::kWorkspaceBytes says
  explicit MatmulWorkspace(Runtime& runtime)
      : tensor(empty({kBytes}, DType::u8, runtime.device(), Purpose::workspace)) {}
  Tensor tensor;
};

Tensor make_workspace(const Tensor& a, const MatmulProblem& problem) {
  if (a.device().target() == DeviceKind::cuda) return matmul_workspace(a.runtime());
  if (acc_dtype(a.dtype()) == a.dtype()) return {};  // f32 and f64 go to OpenBLAS as they are
  return empty({matmul_scratch(problem)}, DType::f32, a.device(), Purpose::workspace);
}

// a and b are `rows` by `columns` as stored.
MatmulProblem check(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Sink& c,
                    int64_t batch, int64_t a_rows, int64_t b_rows) {
  const MatmulProblem problem{.batch = batch,
                              .m = options.transpose_a ? a.dim(-1) : a_rows,
                              .n = options.transpose_b ? b_rows : b.dim(-1),
                              .k = options.transpose_a ? a_rows : a.dim(-1)};
  const int64_t k = options.transpose_b ? b.dim(-1) : b_rows;
  PHX_CHECK(k == problem.k, "matmul: a ", a.shape(), options.transpose_a ? " transposed" : "",
            " has ", problem.k, " columns, but b ", b.shape(),
            options.transpose_b ? " transposed" : "", " has ", k, " rows");
  PHX_CHECK(
      c.tensor.dim(-1) == problem.n && c.tensor.numel() == problem.batch * problem.m * problem.n,
      "matmul: c should hold ", problem.m, " x ", problem.n, " elements, but it is ",
      c.tensor.shape());
  PHX_CHECK(a.dtype() == b.dtype() &&
                (c.tensor.dtype() == a.dtype() || c.tensor.dtype() == acc_dtype(a.dtype())),
            "matmul: a and b should have one dtype, and c the same or ", acc_dtype(a.dtype()),
            "; they are ", a.dtype(), ", ", b.dtype(), " and ", c.tensor.dtype());
  const Tensor& bias = options.bias;
  PHX_CHECK(
      !bias.defined() || (bias.shape() == Shape({problem.n}) && bias.dtype() == c.tensor.dtype()),
      "matmul: the bias should be [", problem.n, "] of ", c.tensor.dtype(), ", but it is ",
      bias.shape(), " of ", bias.dtype());
  const Tensor& add = options.add;
  PHX_CHECK(!add.defined() || (add.numel() == c.tensor.numel() && add.dtype() == c.tensor.dtype() &&
                               c.beta == 0.f && options.activation == MatmulActivation::none),
            "matmul: what is added should be like c, ", c.tensor.shape(), " of ", c.tensor.dtype(),
            ", without beta and activation, but it is ", add.shape(), " of ", add.dtype());
  return problem;
}

void run(const Tensor& a, const Tensor& b, const MatmulOptions& options,
         const MatmulProblem& problem, const Sink& c) {
  if (c.tensor.numel() == 0) return;
  if (problem.k == 0 && !options.bias.defined() && !options.add.defined() &&
      options.activation == MatmulActivation::none) {
    Tensor out = c.tensor;  // an expert without tokens: its weight's gradient is 0
    if (c.beta == 0.f) set_zero(out);
    return;
  }
  Tensor workspace = make_workspace(a, problem);
  matmul(a, b, options, problem, workspace, c);
}

int64_t rows_of(const Tensor& x) {
  PHX_CHECK(x.rank() >= 1, "matmul: a matrix has at least one dimension");
  int64_t rows = 1;  // not numel / last, which would divide by zero
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.dim(i);
  return rows;
}

}  // namespace

Tensor matmul_workspace(Runtime& runtime) { return runtime.extension<MatmulWorkspace>().tensor; }

void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Sink& c) {
  run(a, b, options, check(a, b, options, c, 1, rows_of(a), rows_of(b)), c);
}

void matmul_batched(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Sink& c) {
  PHX_CHECK(a.rank() == 3 && b.rank() == 3 && c.tensor.rank() == 3 && a.dim(0) == b.dim(0) &&
                a.dim(0) == c.tensor.dim(0),
            "matmul_batched: a, b and c should be [g, .., ..] with one g, but they are ", a.shape(),
            ", ", b.shape(), " and ", c.tensor.shape());
  run(a, b, options, check(a, b, options, c, a.dim(0), a.dim(1), b.dim(1)), c);
}

void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor& workspace, const Sink& c) {
  PHX_DISPATCH(a.device(), matmul, a, b, options, problem, workspace, c);
}

}  // namespace phx::kernels
