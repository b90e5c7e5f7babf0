#include "phalanx/kernels/matmul.h"

#include <cstring>

#include "phalanx/kernels/cpu/gemm.h"
#include "phalanx/kernels/cpu/vector_math.h"
#include "phalanx/kernels/matmul_blocks.h"

namespace phx::kernels::cpu {

namespace {

// A part of a product: rows and columns of c.
struct Tile {
  int64_t i0, i1, j0, j1;
};

// The output is cut along its longer side into a power of two of panels, so that they spread evenly
// over 2, 4, 8.. threads. Every panel packs the other operand again, which costs about 1 / extent
// of the work: two threads are worth small panels, more panels must be larger each.
int64_t num_panels(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kMostPanels = 64;
  constexpr int64_t kLeastWork = 1 << 20;  // multiply-adds worth waking another thread for
  const auto least_extent = [](int64_t panels) {
    return panels <= 2 ? 96 : panels <= 4 ? 192 : panels <= 8 ? 512 : 1024;
  };
  int64_t panels = 1;
  while (panels < kMostPanels && std::max(m, n) / (2 * panels) >= least_extent(2 * panels) &&
         m * n * k / (2 * panels) >= kLeastWork)
    panels *= 2;
  return panels;
}

Tile panel(int64_t index, int64_t panels, int64_t m, int64_t n) {
  // Multiples of 16, the width of OpenBLAS's inner kernels, so that only the last panel has a rest.
  const auto edge = [&](int64_t extent, int64_t at) {
    return at == panels ? extent : extent * at / panels / 16 * 16;
  };
  if (m >= n) return {edge(m, index), edge(m, index + 1), 0, n};
  return {0, m, edge(n, index), edge(n, index + 1)};
}

template <class T>
struct Matrix {
  const T* data;
  int64_t stride;  // between rows as stored
  bool transposed;

  const T* at(int64_t row, int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
};

// c[tile] = alpha a[tile's rows] b[tile's columns] + beta c[tile]
template <class T>
void multiply(const Matrix<T>& a, const Matrix<T>& b, int64_t k, T alpha, T beta, T* c,
              int64_t c_stride, const Tile& tile) {
  gemm(tile.i1 - tile.i0, tile.j1 - tile.j0, k, alpha, {a.at(tile.i0, 0), a.stride, a.transposed},
       {b.at(0, tile.j0), b.stride, b.transposed}, beta, c + tile.i0 * c_stride + tile.j0,
       c_stride);
}

template <class T>
T gelu(T x) {
  constexpr T kRoot = T(0.7978845608028654);  // sqrt(2 / pi)
  return T(0.5) * x * (T(1) + fast_tanh(kRoot * (x + T(0.044715) * x * x * x)));
}

// out[j] = activation(sum[j] + beta out[j] + bias[j]) over one row; sum may be out itself, with
// beta 0.
template <class Acc, class T>
void finish_row(const Acc* sum, T* out, const T* bias, float beta, MatmulActivation activation,
                int64_t n) {
  const bool keep = beta != 0.f;
  const auto value = [&](int64_t j) {
    Acc v = sum[j];
    if (keep) v += Acc(beta) * Acc(out[j]);
    if (bias != nullptr) v += Acc(bias[j]);
    return v;
  };
  if (activation == MatmulActivation::gelu) {
    for (int64_t j = 0; j < n; ++j) out[j] = T(gelu(value(j)));
  } else if (keep || bias != nullptr) {
    for (int64_t j = 0; j < n; ++j) out[j] = T(value(j));
  } else {
    for (int64_t j = 0; j < n; ++j) out[j] = T(sum[j]);
  }
}

template <class T>
const T* bias_of(const MatmulOptions& options) {
  return options.bias.defined() ? options.bias.data<T>() : nullptr;
}

// f32 and f64: OpenBLAS reads and writes the tensors themselves.
template <class T>
void direct(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, const Sink& c) {
  const int64_t batch = problem.batch, m = problem.m, n = problem.n, k = problem.k;
  const int64_t panels = num_panels(m, n, k);
  const T* bias = bias_of<T>(options);
  a.device().threads().parallel_for(batch * panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const int64_t g = index / panels;
      const Matrix<T> left{a.data<T>() + g * m * k, options.transpose_a ? m : k,
                           options.transpose_a};
      const Matrix<T> right{b.data<T>() + g * k * n, options.transpose_b ? k : n,
                            options.transpose_b};
      T* out = c.tensor.data<T>() + g * m * n;
      const Tile tile = panel(index % panels, panels, m, n);
      multiply<T>(left, right, k, T(options.alpha), T(c.beta), out, n, tile);
      if (bias == nullptr && options.activation == MatmulActivation::none) continue;
      for (int64_t i = tile.i0; i < tile.i1; ++i) {
        T* row = out + i * n + tile.j0;
        finish_row<T, T>(row, row, bias ? bias + tile.j0 : nullptr, 0.f, options.activation,
                         tile.j1 - tile.j0);
      }
    }
  });
}

// A block of a matrix as stored: `rows` rows of `columns`, `stride` apart in memory.
template <class T>
struct StoredBlock {
  const T* from;
  int64_t rows, columns, stride;
  float* to;  // [rows, columns]
};

template <class T>
StoredBlock<T> stored_block(const Matrix<T>& x, int64_t row, int64_t column, int64_t rows,
                            int64_t columns, float* to) {
  return {x.at(row, column), x.transposed ? columns : rows, x.transposed ? rows : columns, x.stride,
          to};
}

template <class T>
void widen(const Tensor& on, const StoredBlock<T>& x, const StoredBlock<T>& y) {
  const auto widen_rows = [](const StoredBlock<T>& block, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* from = block.from + row * block.stride;
      float* to = block.to + row * block.columns;
      for (int64_t j = 0; j < block.columns; ++j) to[j] = float(from[j]);
    }
  };
  on.device().threads().parallel_for(x.rows + y.rows, 16, [&](int64_t begin, int64_t end) {
    widen_rows(x, std::min(begin, x.rows), std::min(end, x.rows));
    widen_rows(y, std::max(begin - x.rows, int64_t{0}), std::max(end - x.rows, int64_t{0}));
  });
}

// 16-bit operands T, and c in f32 or T: blocks are widened into the workspace. Sums over k run
// through all its blocks in f32 before the one rounding.
template <class T, class C>
void widened(const Tensor& a, const Tensor& b, const MatmulOptions& options,
             const MatmulProblem& problem, Tensor& workspace, const Sink& c) {
  const int64_t batch = problem.batch, m = problem.m, n = problem.n, k = problem.k;
  const MatmulBlocks block = matmul_blocks(problem);
  float* a_block = workspace.data<float>();
  float* b_block = a_block + block.m * block.k;
  float* c_block = b_block + block.k * block.n;
  const C* bias = bias_of<C>(options);

  const auto make_block = [&](int64_t g, int64_t m0, int64_t n0) {
    const Matrix<T> left{a.data<T>() + g * m * k, options.transpose_a ? m : k, options.transpose_a};
    const Matrix<T> right{b.data<T>() + g * k * n, options.transpose_b ? k : n,
                          options.transpose_b};
    C* out = c.tensor.data<C>() + (g * m + m0) * n + n0;
    const int64_t mc = std::min(block.m, m - m0), nc = std::min(block.n, n - n0);
    const int64_t panels = num_panels(mc, nc, k);
    int64_t k0 = 0;
    do {  // once even if k is 0: c still gets beta, bias and activation
      const int64_t kc = std::min(block.k, k - k0);
      widen(a, stored_block(left, m0, k0, mc, kc, a_block),
            stored_block(right, k0, n0, kc, nc, b_block));
      const Matrix<float> left32{a_block, options.transpose_a ? mc : kc, options.transpose_a};
      const Matrix<float> right32{b_block, options.transpose_b ? kc : nc, options.transpose_b};
      a.device().threads().parallel_for(panels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t index = begin; index < end; ++index) {
          const Tile tile = panel(index, panels, mc, nc);
          multiply<float>(left32, right32, kc, options.alpha, k0 > 0 ? 1.f : 0.f, c_block, nc,
                          tile);
          if (k0 + kc < k) continue;
          for (int64_t i = tile.i0; i < tile.i1; ++i)
            finish_row<float, C>(c_block + i * nc + tile.j0, out + i * n + tile.j0,
                                 bias ? bias + n0 + tile.j0 : nullptr, c.beta, options.activation,
                                 tile.j1 - tile.j0);
        }
      });
      k0 += kc;
    } while (k0 < k);
  };
  for (int64_t g = 0; g < batch; ++g)
    for (int64_t m0 = 0; m0 < m; m0 += block.m)
      for (int64_t n0 = 0; n0 < n; n0 += block.n) make_block(g, m0, n0);
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor& workspace, const Sink& sink) {
  Sink c = sink;
  if (options.add.defined()) {  // the same sum with what is added as the old c
    if (options.add.raw() != c.tensor.raw())
      std::memcpy(c.tensor.raw(), options.add.raw(), size_t(c.tensor.bytes()));
    c.beta = 1.f;
  }
  for_float_dtype(a.dtype(), [&]<class T>() {
    if constexpr (std::is_same_v<T, acc_t<T>>) {
      direct<T>(a, b, options, problem, c);
    } else if (c.tensor.dtype() == DType::f32) {
      widened<T, float>(a, b, options, problem, workspace, c);
    } else {
      widened<T, T>(a, b, options, problem, workspace, c);
    }
  });
}

}  // namespace phx::kernels::cpu
