#include "phalanx/kernels/embedding.h"

#include <algorithm>

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

namespace {

// The ids as local rows; -1 for a row of another rank.
class LocalRows {
 public:
  LocalRows(const Tensor& ids, const EmbeddingOptions& options, int64_t rows)
      : ids_(ids), options_(options), rows_(rows) {}

  int64_t operator()(int64_t i) const {
    const int64_t id = ids_.dtype() == DType::i64 ? static_cast<const int64_t*>(ids_.raw())[i]
                                                  : static_cast<const int32_t*>(ids_.raw())[i];
    const int64_t vocabulary = options_.vocabulary > 0 ? options_.vocabulary : rows_;
    PHX_CHECK(id >= 0 && id < vocabulary, "embedding: id ", id, " at position ", i, " of ",
              ids_.shape(), " is outside of the vocabulary of ", vocabulary);
    const int64_t row = id - options_.first_row;
    return row >= 0 && row < rows_ ? row : -1;
  }

 private:
  const Tensor& ids_;
  const EmbeddingOptions& options_;
  int64_t rows_;
};

}  // namespace

void embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options, Tensor& y) {
  const int64_t h = table.dim(1);
  const LocalRows local(ids, options, table.dim(0));
  for_float_dtype(table.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc scale = Acc(options.scale);
    for_rows(y, ids.numel(), h, [&](int64_t i) {
      T* out = y.data<T>() + i * h;
      const int64_t row = local(i);
      if (row < 0) {
        std::fill(out, out + h, T(Acc(0)));
        return;
      }
      const T* in = table.data<T>() + row * h;
      if (scale == Acc(1)) {
        std::copy(in, in + h, out);
      } else {
        for (int64_t c = 0; c < h; ++c) out[c] = T(Acc(in[c]) * scale);
      }
    });
  });
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options,
                        Tensor& workspace, const Sink& dtable) {
  const int64_t rows = dtable.tensor.dim(0), h = dtable.tensor.dim(1), n = ids.numel();
  const LocalRows local(ids, options, rows);
  // A counting sort: afterwards order[begins[r] .. begins[r + 1]) are the positions of row r.
  int64_t* begins = static_cast<int64_t*>(workspace.raw());
  int64_t* order = begins + rows + 1;
  std::fill(begins, begins + rows + 1, 0);
  for (int64_t i = 0; i < n; ++i)
    if (const int64_t row = local(i); row >= 0) ++begins[row];
  int64_t total = 0;
  for (int64_t row = 0; row <= rows; ++row) begins[row] = total += row < rows ? begins[row] : 0;
  for (int64_t i = n - 1; i >= 0; --i)  // from the end: each row's begin moves down to its first
    if (const int64_t row = local(i); row >= 0) order[--begins[row]] = i;

  for_float_dtype(dy.dtype(), [&]<class T>() {
    for_float_dtype(dtable.tensor.dtype(), [&]<class Y>() {
      using Acc = acc_t<T>;
      const Acc scale = Acc(options.scale);
      const bool keep = dtable.beta != 0.f;
      for_rows(dy, rows, h, [&](int64_t row) {
        const int64_t begin = begins[row], end = begins[row + 1];
        if (begin == end && keep) return;
        constexpr int64_t kSpan = 64;
        for (int64_t first = 0; first < h; first += kSpan) {
          const int64_t count = std::min(kSpan, h - first);
          Acc sums[kSpan] = {};
          for (int64_t k = begin; k < end; ++k) {
            const T* d = dy.data<T>() + order[k] * h + first;
            for (int64_t c = 0; c < count; ++c) sums[c] += Acc(d[c]);
          }
          Y* out = dtable.tensor.data<Y>() + row * h + first;
          for (int64_t c = 0; c < count; ++c) {
            const Acc value = sums[c] * scale;
            out[c] = Y(acc_t<Y>(keep ? Acc(out[c]) + value : value));
          }
        }
      });
    });
  });
}

}  // namespace phx::kernels::cpu
