#include "phalanx/kernels/expert_rows.h"

#include <algorithm>
#include <vector>

#include "phalanx/kernels/activation_math.h"
#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/cpu/vector_math.h"
#include "phalanx/kernels/matmul.h"

namespace phx::kernels::cpu {

namespace {

struct CpuMath {
  template <class T>
  static T exp(T x) {
    return fast_exp(x);
  }
  template <class T>
  static T erf(T x) {
    return fast_erf(x);
  }
  template <class T>
  static T sigmoid(T x) {
    return cpu::sigmoid(x);
  }
};

int64_t rows_used(const Tensor& offsets) { return offsets.data<int32_t>()[offsets.numel() - 1]; }

// f(expert, first row, rows) for every expert.
template <class F>
void for_experts(const Tensor& offsets, F&& f) {
  const int32_t* at = offsets.data<int32_t>();
  for (int64_t e = 0; e + 1 < offsets.numel(); ++e)
    f(e, int64_t{at[e]}, int64_t{at[e + 1] - at[e]});
}

}  // namespace

void sort_by_expert(const Tensor& indices, int64_t first, Tensor&, Tensor& row_of,
                    Tensor& choice_of, Tensor& offsets) {
  const int64_t choices = indices.numel(), e = offsets.numel() - 1;
  const int32_t* chosen = indices.data<int32_t>();
  int32_t* at = offsets.data<int32_t>();
  const auto local = [&](int64_t i) {
    const int64_t expert = chosen[i] - first;
    return chosen[i] >= 0 && expert >= 0 && expert < e ? expert : -1;
  };
  std::vector<int32_t> next(size_t(e) + 1, 0);
  for (int64_t i = 0; i < choices; ++i)
    if (const int64_t expert = local(i); expert >= 0) ++next[size_t(expert) + 1];
  for (size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  PHX_CHECK(next.back() <= choice_of.numel(), "experts got ", next.back(),
            " rows, but there is room for ", choice_of.numel());
  std::copy(next.begin(), next.end(), at);
  std::fill_n(choice_of.data<int32_t>(), choice_of.numel(), -1);
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t expert = local(i);
    const int32_t row = expert < 0 ? -1 : next[size_t(expert)]++;
    row_of.data<int32_t>()[i] = row;
    if (row >= 0) choice_of.data<int32_t>()[row] = int32_t(i);
  }
}

void gather_rows(const Tensor& x, const Tensor& source, int64_t per_row, Tensor& y) {
  const int64_t rows = y.dim(0), h = y.numel() / rows;
  const int32_t* from = source.data<int32_t>();
  for_float_dtype(x.dtype(), [&]<class T>() {
    for_rows(y, rows, h, [&](int64_t row) {
      T* out = y.data<T>() + row * h;
      if (from[row] < 0) {
        std::fill_n(out, h, T(acc_t<T>(0)));
      } else {
        std::copy_n(x.data<T>() + from[row] / per_row * h, h, out);
      }
    });
  });
}

void sum_rows(const Tensor& x, const Tensor& row_of, const Sink& out) {
  const int64_t t = row_of.dim(0), k = row_of.numel() / t, h = out.tensor.numel() / t;
  const int32_t* rows = row_of.data<int32_t>();
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(out.tensor, t, h * k, [&](int64_t i) {
      T* to = out.tensor.data<T>() + i * h;
      for (int64_t c = 0; c < h; ++c) {
        Acc sum = out.beta != 0.f ? Acc(to[c]) : Acc(0);
        for (int64_t j = 0; j < k; ++j)
          if (const int64_t row = rows[i * k + j]; row >= 0) sum += Acc(x.data<T>()[row * h + c]);
        to[c] = T(sum);
      }
    });
  });
}

void expert_counts(const Tensor& offsets, Tensor& counts) {
  const int32_t* at = offsets.data<int32_t>();
  for (int64_t e = 0; e < counts.numel(); ++e) counts.data<int32_t>()[e] = at[e + 1] - at[e];
}

void merge_by_expert(const Tensor& counts, int64_t first, Tensor&, Tensor& source, Tensor& place,
                     Tensor& offsets) {
  const int64_t g = counts.dim(0), all = counts.dim(1), e = offsets.numel() - 1;
  const int64_t room = source.numel();
  const int32_t* n = counts.data<int32_t>() + first;
  int32_t *from = source.data<int32_t>(), *to = place.data<int32_t>();
  std::fill_n(from, room, -1);
  std::fill_n(to, room, -1);
  std::vector<int64_t> block(size_t(g * e) + 1, 0);  // where a sender's rows of an expert begin
  for (int64_t i = 0; i < g * e; ++i)
    block[size_t(i) + 1] = block[size_t(i)] + n[i / e * all + i % e];
  PHX_CHECK(block.back() <= room, "experts got ", block.back(), " rows, but there is room for ",
            room);
  int64_t row = 0;
  for (int64_t expert = 0; expert < e; ++expert) {
    offsets.data<int32_t>()[expert] = int32_t(row);
    for (int64_t sender = 0; sender < g; ++sender) {
      const size_t cell = size_t(sender * e + expert);
      for (int64_t i = block[cell]; i < block[cell + 1]; ++i, ++row) {
        from[row] = int32_t(i);
        to[i] = int32_t(row);
      }
    }
  }
  offsets.data<int32_t>()[e] = int32_t(row);
}

void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                    Tensor& workspace, const Sink& c) {
  const int64_t k = a.dim(-1), n = c.tensor.dim(-1);
  for_experts(offsets, [&](int64_t e, int64_t first, int64_t rows) {
    if (rows == 0) return;
    cpu::matmul(a.rows(first, rows), w.rows(e, 1), {.transpose_b = !transposed},
                {.m = rows, .n = n, .k = k}, workspace, {c.tensor.rows(first, rows), c.beta});
  });
}

void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                            Tensor& workspace, const Sink& dw) {
  for_experts(offsets, [&](int64_t e, int64_t first, int64_t rows) {
    Tensor out = dw.tensor.rows(e, 1);  // [1, n, k]
    if (rows == 0) {
      if (dw.beta == 0.f) set_zero(out);
      return;
    }
    cpu::matmul(dy.rows(first, rows), x.rows(first, rows), {.transpose_a = true},
                {.m = dy.dim(-1), .n = x.dim(-1), .k = rows}, workspace, {out, dw.beta});
  });
}

void scale_rows(const Tensor& x, const Tensor& factors, Tensor& y) {
  const int64_t h = x.dim(-1);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(x, x.dim(0), h, [&](int64_t row) {
      const T* in = x.data<T>() + row * h;
      T* out = y.data<T>() + row * h;
      const Acc factor = factors.data<Acc>()[row];
      for (int64_t i = 0; i < h; ++i) out[i] = T(factor * Acc(in[i]));
    });
  });
}

void scale_rows_backward(const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx,
                         Tensor& dfactors) {
  const int64_t h = x.dim(-1);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_rows(x, x.dim(0), h, [&](int64_t row) {
      const T *in = x.data<T>() + row * h, *d = dy.data<T>() + row * h;
      T* out = dx.data<T>() + row * h;
      const Acc factor = factors.data<Acc>()[row];
      Acc dot = 0;
      for (int64_t i = 0; i < h; ++i) {
        dot += Acc(d[i]) * Acc(in[i]);
        out[i] = T(factor * Acc(d[i]));
      }
      dfactors.data<Acc>()[row] = dot;
    });
  });
}

void activate_weighted(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                       const ExpertActivation& activation, Tensor& y) {
  const int64_t f = y.dim(-1), width = x.dim(-1);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    for_activation(activation.kind, [&]<Activation kKind>() {
      for_rows(x, rows_used(offsets), f, [&](int64_t row) {
        const T *gate = x.data<T>() + row * width, *up = gate + f;
        T* out = y.data<T>() + row * f;
        const Acc p = probs.data<Acc>()[row];
        for (int64_t i = 0; i < f; ++i) {
          const Acc value = activation_at<kKind, CpuMath>(Acc(gate[i])).value;
          out[i] = T(p * (activation.gated ? value * Acc(up[i]) : value));
        }
      });
    });
  });
}

void activate_weighted_backward(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                                const Tensor& dy, const ExpertActivation& activation, Tensor& dx,
                                Tensor& dprobs) {
  const int64_t f = dy.dim(-1), width = x.dim(-1), used = rows_used(offsets);
  for_float_dtype(x.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    std::fill(dprobs.data<Acc>() + used, dprobs.data<Acc>() + dprobs.numel(), Acc(0));
    for_activation(activation.kind, [&]<Activation kKind>() {
      for_rows(x, used, f, [&](int64_t row) {
        const T *gate = x.data<T>() + row * width, *up = gate + f, *d = dy.data<T>() + row * f;
        T *dgate = dx.data<T>() + row * width, *dup = dgate + f;
        const Acc p = probs.data<Acc>()[row];
        Acc dp = 0;
        for (int64_t i = 0; i < f; ++i) {
          const auto act = activation_at<kKind, CpuMath>(Acc(gate[i]));
          const Acc factor = activation.gated ? Acc(up[i]) : Acc(1);
          dp += Acc(d[i]) * act.value * factor;
          dgate[i] = T(p * Acc(d[i]) * factor * act.slope);
          if (activation.gated) dup[i] = T(p * Acc(d[i]) * act.value);
        }
        dprobs.data<Acc>()[row] = dp;
      });
    });
  });
}

}  // namespace phx::kernels::cpu
