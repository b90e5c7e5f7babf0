#include "phalanx/kernels/cross_entropy.h"

#include <cmath>
#include <limits>

#include "phalanx/kernels/cpu/loops.h"
#include "phalanx/kernels/cpu/vector_math.h"

namespace phx::kernels::cpu {

namespace {

template <class Acc>
constexpr Acc kMinusInf = -std::numeric_limits<Acc>::infinity();

template <class Acc>
struct Softcap {
  Acc cap, inverse;
  explicit Softcap(double softcap) : cap(Acc(softcap)), inverse(Acc(1 / softcap)) {}
  Acc operator()(Acc z) const { return cap * fast_tanh(z * inverse); }
  Acc slope(Acc capped) const {  // dz'/dz = 1 - tanh^2
    const Acc tanh = capped * inverse;
    return Acc(1) - tanh * tanh;
  }
};

template <class Acc>
struct NoCap {
  Acc operator()(Acc z) const { return z; }
  Acc slope(Acc) const { return 1; }
};

template <class Acc, class F>
void with_cap(double softcap, F&& f) {
  if (softcap != 0)
    f(Softcap<Acc>(softcap));
  else
    f(NoCap<Acc>());
}

struct Label {
  int64_t column;  // -1: its class is not among the columns
  bool ignored;
  bool valid;  // a class of the vocabulary, or ignored
};

class Labels {
 public:
  Labels(const Tensor& labels, int64_t classes, const CrossEntropyOptions& options)
      : wide_(labels.dtype() == DType::i64),
        data_(labels.raw()),
        classes_(classes),
        options_(options) {}

  Label operator[](int64_t row) const {
    const int64_t label =
        wide_ ? static_cast<const int64_t*>(data_)[row] : static_cast<const int32_t*>(data_)[row];
    const bool ignored = label == options_.ignore_index;
    const int64_t column = label - options_.first_class;
    return {.column = !ignored && column >= 0 && column < classes_ ? column : -1,
            .ignored = ignored,
            .valid = ignored || (label >= 0 && label < options_.vocab)};
  }

 private:
  bool wide_;
  const void* data_;
  int64_t classes_;
  const CrossEntropyOptions& options_;
};

template <class Acc>
using Statistics = RowStatistics<Acc>;

// One pass: a block's largest is known before its exponentials are added, and the sum so far is
// rescaled when a block raises it.
template <class T, class Acc, class Cap>
Statistics<Acc> row_statistics(const T* z, int64_t classes, const Label& label, const Cap& cap) {
  constexpr int64_t kBlock = 256;
  Acc block[kBlock];
  Acc largest = kMinusInf<Acc>, sum = 0;
  for (int64_t begin = 0; begin < classes; begin += kBlock) {
    const int64_t n = std::min(kBlock, classes - begin);
    Acc most = kMinusInf<Acc>;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; ++i) {
      block[i] = cap(Acc(z[begin + i]));
      most = std::max(most, block[i]);
    }
    if (most > largest) {
      sum *= std::exp(largest - most);  // the first block: exp(-inf) = 0
      largest = most;
    }
    Acc added = 0;
#pragma omp simd reduction(+ : added)
    for (int64_t i = 0; i < n; ++i) added += fast_exp(block[i] - largest);
    sum += added;
  }
  return {largest, sum, label.column >= 0 ? cap(Acc(z[label.column])) : Acc(0)};
}

template <class T, class Acc, class Cap>
void row_gradient(T* z, int64_t classes, int64_t columns, const Label& label, Acc lse, Acc weight,
                  const Cap& cap) {
  if (label.ignored || weight == 0) {
    std::fill(z, z + columns, T(0));
    return;
  }
  const Acc target = label.column >= 0 ? cap(Acc(z[label.column])) : Acc(0);
#pragma omp simd
  for (int64_t i = 0; i < classes; ++i) {
    const Acc capped = cap(Acc(z[i]));
    z[i] = T(fast_exp(capped - lse) * cap.slope(capped) * weight);
  }
  if (label.column >= 0)
    z[label.column] = T((fast_exp(target - lse) - Acc(1)) * cap.slope(target) * weight);
  std::fill(z + classes, z + columns, T(0));
}

template <class Acc>
struct Loss {
  Acc lse, loss;
};

template <class Acc>
Loss<Acc> row_loss(const Statistics<Acc>& s, const Label& label) {
  constexpr Acc kNan = std::numeric_limits<Acc>::quiet_NaN();
  if (!label.valid) return {kNan, kNan};
  const Acc lse = s.largest + std::log(s.sum);
  return {lse, label.ignored ? Acc(0) : lse - s.target};
}

template <class Acc>
class Weights {
 public:
  explicit Weights(const RowWeights& weights)
      : mask_(weights.mask.defined() ? weights.mask.data<Acc>() : nullptr) {
    if (weights.scale.defined()) factor_ *= weights.scale.data<Acc>()[0];
    if (weights.dloss.defined()) factor_ *= weights.dloss.data<Acc>()[0];
  }
  Acc operator[](int64_t row) const { return mask_ != nullptr ? mask_[row] * factor_ : factor_; }

 private:
  const Acc* mask_;
  Acc factor_ = 1;
};

}  // namespace

void cross_entropy_statistics(const Tensor& logits, const Tensor& labels,
                              const CrossEntropyOptions& options, Tensor& statistics) {
  const int64_t rows = logits.dim(0), columns = logits.dim(1);
  const int64_t classes = num_classes(columns, options);
  const Labels label(labels, classes, options);
  for_float_dtype(logits.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const T* z = logits.data<T>();
    Acc* out = statistics.data<Acc>();
    with_cap<Acc>(options.logit_softcap, [&](const auto& cap) {
      for_rows(logits, rows, columns, [&](int64_t row) {
        const auto s = row_statistics<T, Acc>(z + row * columns, classes, label[row], cap);
        out[row * 3] = s.largest;
        out[row * 3 + 1] = s.sum;
        out[row * 3 + 2] = s.target;
      });
    });
  });
}

void cross_entropy_losses(const Tensor& statistics, const Tensor& labels,
                          const CrossEntropyOptions& options, Tensor& lse, Tensor& losses) {
  const int64_t rows = labels.numel(), ranks = statistics.dim(0) / rows;
  const Labels label(labels, options.vocab, options);
  for_float_dtype(statistics.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc* s = statistics.data<Acc>();
    Acc* out_lse = lse.data<Acc>();
    Acc* out = losses.data<Acc>();
    for (int64_t row = 0; row < rows; ++row) {
      const auto loss = row_loss<Acc>(row_of_all_ranks(s, rows, ranks, row), label[row]);
      out_lse[row] = loss.lse;
      out[row] = loss.loss;
    }
  });
}

void cross_entropy_gradient(Tensor& logits, const Tensor& labels, const Tensor& lse,
                            const RowWeights& weights, const CrossEntropyOptions& options) {
  const int64_t rows = logits.dim(0), columns = logits.dim(1);
  const int64_t classes = num_classes(columns, options);
  const Labels label(labels, classes, options);
  for_float_dtype(logits.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    T* z = logits.data<T>();
    const Acc* row_lse = lse.data<Acc>();
    const Weights<Acc> weight(weights);
    with_cap<Acc>(options.logit_softcap, [&](const auto& cap) {
      for_rows(logits, rows, columns, [&](int64_t row) {
        row_gradient<T, Acc>(z + row * columns, classes, columns, label[row], row_lse[row],
                             weight[row], cap);
      });
    });
  });
}

void cross_entropy_with_gradient(Tensor& logits, const Tensor& labels, const RowWeights& weights,
                                 const CrossEntropyOptions& options, Tensor& losses) {
  const int64_t rows = logits.dim(0), columns = logits.dim(1);
  const int64_t classes = num_classes(columns, options);
  const Labels label(labels, classes, options);
  for_float_dtype(logits.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    T* z = logits.data<T>();
    Acc* out = losses.data<Acc>();
    const Weights<Acc> weight(weights);
    with_cap<Acc>(options.logit_softcap, [&](const auto& cap) {
      for_rows(logits, rows, columns, [&](int64_t row) {
        T* at = z + row * columns;
        const Label target = label[row];
        const auto loss = row_loss<Acc>(row_statistics<T, Acc>(at, classes, target, cap), target);
        row_gradient<T, Acc>(at, classes, columns, target, loss.lse, weight[row], cap);
        out[row] = loss.loss;
      });
    });
  });
}

void masked_sum(const Tensor& losses, const Tensor& mask, Tensor& sum) {
  for_float_dtype(losses.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const Acc* loss = losses.data<Acc>();
    const Acc* weight = mask.defined() ? mask.data<Acc>() : nullptr;
    double total = 0;
    for (int64_t i = 0; i < losses.numel(); ++i)
      if (weight == nullptr)
        total += loss[i];
      else if (weight[i] != 0)
        total += double(loss[i]) * weight[i];
    sum.data<Acc>()[0] = Acc(total);
  });
}

void softcap(Tensor& logits, double softcap) {
  for_float_dtype(logits.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    T* z = logits.data<T>();
    const Softcap<Acc> cap(softcap);
    for_elements(logits, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) z[i] = T(cap(Acc(z[i])));
    });
  });
}

}  // namespace phx::kernels::cpu
