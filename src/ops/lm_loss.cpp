#include "phalanx/ops/lm_loss.h"

#include <algorithm>

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/cross_entropy.h"
#include "phalanx/kernels/matmul.h"

namespace phx {

namespace {

// On cpu: with few rows the weight and its gradient are read too often (one thread, v = 32000: 64
// rows reached 82% of a large product's rate, 128 and 256 reached 93%). 512 was the best of 256,
// 512 and 1024 in whole training steps, on a machine too noisy to call that settled.
constexpr int64_t kCpuRows = 512;
constexpr int64_t kRowStep = 64;  // the rows of a GEMM's tile

// Depends on shapes and the target alone, so that all devices allocate alike.
int64_t rows_per_chunk(const Tensor& x, const Tensor& w, const LmLossOptions& options) {
  int64_t rows = std::max<int64_t>(options.chunk_bytes / (w.dim(0) * size_of(x.dtype())), 1);
  if (x.device().target() == DeviceKind::cpu) rows = std::min(rows, kCpuRows);
  if (rows > kRowStep) rows -= rows % kRowStep;
  return std::min(rows, x.dim(0));
}

// The head's inputs and how they are cut into chunks of rows.
struct Head {
  Tensor x;           // [t, h]
  Tensor w;           // [v, h]
  Tensor labels;      // [t]
  Tensor loss_mask;   // [t] or undefined
  Tensor grad_scale;  // [1] or undefined
  kernels::CrossEntropyOptions options;
  Communicator* class_ranks;
  int64_t chunk_rows;

  // Statistics of all classes, [ranks * rows, 3]: this rank's, or everybody's one after the other.
  Tensor statistics(const Tensor& logits, const Tensor& labels, Tensor& buffer) const {
    const int64_t rows = logits.dim(0);
    const int64_t ranks = class_ranks == nullptr ? 1 : class_ranks->size();
    Tensor own = buffer.rows(ranks > 1 ? ranks * chunk_rows : 0, rows);
    kernels::cross_entropy_statistics(logits, labels, options, own);
    if (ranks == 1) return own;
    Tensor all = buffer.rows(0, ranks * rows);
    class_ranks->all_gather(own, all, logits.runtime().stream(StreamName::compute));
    return all;
  }
  Tensor statistics_buffer() const {
    const int64_t blocks = class_ranks == nullptr ? 1 : class_ranks->size() + 1;
    return empty({blocks * chunk_rows, 3}, acc_dtype(x.dtype()), x.device(), Purpose::workspace);
  }

  // f(begin, count, logits [count, v]) for each chunk of rows. The logits are f's to overwrite.
  template <class F>
  void for_chunks(F&& f) const {
    const int64_t t = x.dim(0);
    Tensor buffer = empty({chunk_rows, w.dim(0)}, x.dtype(), x.device(), Purpose::workspace);
    for (int64_t begin = 0; begin < t; begin += chunk_rows) {
      const int64_t count = std::min(chunk_rows, t - begin);
      Tensor logits = buffer.rows(0, count);
      kernels::matmul(x.rows(begin, count), w, {.transpose_b = true}, {logits, 0.f});
      f(begin, count, logits);
    }
  }

  kernels::RowWeights weights(int64_t begin, int64_t count, const Tensor& dloss) const {
    return {.mask = loss_mask.defined() ? loss_mask.rows(begin, count) : Tensor(),
            .scale = grad_scale,
            .dloss = dloss};
  }

  // dx = beta * dx + dlogits w for a chunk's rows, dw = beta * dw + dlogits^T x. Sinks that nobody
  // wants are undefined.
  void add_gradients(const Tensor& dlogits, int64_t begin, int64_t count, const Sink& dx,
                     Sink& dw) const {
    if (dx.tensor.defined())
      kernels::matmul(dlogits, w, {}, {dx.tensor.rows(begin, count), dx.beta});
    if (dw.tensor.defined()) {
      kernels::matmul(dlogits, x.rows(begin, count), {.transpose_a = true}, dw);
      dw.beta = 1.f;
    }
  }
};

void check_labels(const Tensor& labels, int64_t vocab, int64_t ignore_index) {
  const bool wide = labels.dtype() == DType::i64;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const int64_t label = wide ? labels.data<int64_t>()[i] : labels.data<int32_t>()[i];
    PHX_CHECK(label == ignore_index || (label >= 0 && label < vocab), "lm_loss: label ", label,
              " at position ", i, " is not in the vocabulary of ", vocab,
              "; positions without a target carry ", ignore_index);
  }
}

int64_t checked_vocab(const Tensor& x, const Tensor& w, const LmLossOptions& options) {
  PHX_CHECK(x.rank() == 2 && w.rank() == 2 && x.dim(1) == w.dim(1), "LM head: x is ", x.shape(),
            " and w ", w.shape(), ", but they should be [t, h] and [v, h]");
  PHX_CHECK(x.dtype() == w.dtype(), "LM head: x is ", x.dtype(), " and w ", w.dtype(),
            ", but they should have one type");
  PHX_CHECK(x.dim(0) > 0, "LM head: there are no rows: x is ", x.shape());
  const int64_t ranks = options.class_ranks == nullptr ? 1 : options.class_ranks->size();
  PHX_CHECK(options.vocab >= 0 && options.vocab <= w.dim(0) * ranks, "LM head: a vocabulary of ",
            options.vocab, " does not fit w ", w.shape(),
            ranks > 1 ? str_cat(" on ", ranks, " ranks") : "");
  return options.vocab > 0 ? options.vocab : w.dim(0) * ranks;
}

Head checked_head(const Tensor& x, const Tensor& w, const Tensor& labels, const Tensor& loss_mask,
                  const Tensor& grad_scale, const LmLossOptions& options) {
  const int64_t vocab = checked_vocab(x, w, options);
  const DType acc = acc_dtype(x.dtype());
  const Shape rows{x.dim(0)};
  PHX_CHECK(
      labels.shape() == rows && (labels.dtype() == DType::i64 || labels.dtype() == DType::i32),
      "lm_loss: x is ", x.shape(), ", so labels should be ", rows, " of i64 or i32, not ",
      labels.shape(), " of ", labels.dtype());
  PHX_CHECK(!loss_mask.defined() || (loss_mask.shape() == rows && loss_mask.dtype() == acc),
            "lm_loss: x is ", x.shape(), ", so loss_mask should be ", rows, " of ", acc, ", not ",
            loss_mask.shape(), " of ", loss_mask.dtype());
  PHX_CHECK(!grad_scale.defined() || (grad_scale.numel() == 1 && grad_scale.dtype() == acc),
            "lm_loss: grad_scale should be one ", acc, ", not ", grad_scale.shape(), " of ",
            grad_scale.dtype());
  if (labels.device().kind() == DeviceKind::cpu) check_labels(labels, vocab, options.ignore_index);
  return {.x = x.detach(),
          .w = w.detach(),
          .labels = labels.detach(),
          .loss_mask = loss_mask.detach(),
          .grad_scale = grad_scale.detach(),
          .options = {.vocab = vocab,
                      .logit_softcap = options.logit_softcap,
                      .ignore_index = options.ignore_index,
                      .first_class = options.first_class},
          .class_ranks = options.class_ranks,
          .chunk_rows = rows_per_chunk(x, w, options)};
}

Tensor masked_sum(const Head& head, const Tensor& token_losses) {
  Tensor sum = empty({1}, token_losses.dtype(), token_losses.device());
  kernels::masked_sum(token_losses, head.loss_mask, sum);
  return sum;
}

void check_starts_with_one(const Tensor& dloss) {
  if (dloss.device().kind() != DeviceKind::cpu) return;  // reading it would wait for the device
  const double value =
      dloss.dtype() == DType::f64 ? *dloss.data<double>() : double(*dloss.data<float>());
  PHX_CHECK(value == 1, "lm_loss: with a grad_scale the backward starts from 1, not ", value,
            "; put the factor into grad_scale");
}

// Everything while the logits are there.
LmLoss gradients_in_forward(const Head& head, const Tensor& x, const Tensor& w) {
  Tensor token_losses = empty({x.dim(0)}, acc_dtype(x.dtype()), x.device());
  Sink dx, dw = sink_in_forward(w);
  if (x.requires_grad()) dx.tensor = empty_like(head.x);
  if (head.class_ranks == nullptr) {
    head.for_chunks([&](int64_t begin, int64_t count, Tensor& logits) {
      Tensor losses = token_losses.rows(begin, count);
      kernels::cross_entropy_with_gradient(logits, head.labels.rows(begin, count),
                                           head.weights(begin, count, {}), head.options, losses);
      head.add_gradients(logits, begin, count, dx, dw);
    });
  } else {
    Tensor buffer = head.statistics_buffer();
    Tensor lse = empty({head.chunk_rows}, token_losses.dtype(), x.device(), Purpose::workspace);
    head.for_chunks([&](int64_t begin, int64_t count, Tensor& logits) {
      const Tensor labels = head.labels.rows(begin, count);
      Tensor row_lse = lse.rows(0, count), losses = token_losses.rows(begin, count);
      const Tensor all = head.statistics(logits, labels, buffer);
      kernels::cross_entropy_losses(all, labels, head.options, row_lse, losses);
      kernels::cross_entropy_gradient(logits, labels, row_lse, head.weights(begin, count, {}),
                                      head.options);
      head.add_gradients(logits, begin, count, dx, dw);
    });
  }

  const Tensor loss_sum = with_backward(
      masked_sum(head, token_losses), {x, w},
      [dx = std::move(dx.tensor)](const Tensor& dloss, GradOut& grad) mutable {
        check_starts_with_one(dloss);
        grad.pass(0, std::exchange(dx, {}));  // given away, so that others may add to it
        grad.formed(1);
      });
  return {loss_sum, token_losses};
}

// The logits again in the backward.
LmLoss gradients_in_backward(const Head& head, const Tensor& x, const Tensor& w) {
  const DType acc = acc_dtype(x.dtype());
  Tensor token_losses = empty({x.dim(0)}, acc, x.device());
  Tensor lse = empty({x.dim(0)}, acc, x.device());
  Tensor buffer = head.statistics_buffer();
  head.for_chunks([&](int64_t begin, int64_t count, Tensor& logits) {
    Tensor row_lse = lse.rows(begin, count), losses = token_losses.rows(begin, count);
    const Tensor labels = head.labels.rows(begin, count);
    const Tensor all = head.statistics(logits, labels, buffer);
    kernels::cross_entropy_losses(all, labels, head.options, row_lse, losses);
  });

  const Tensor loss_sum = with_backward(
      masked_sum(head, token_losses), {x, w}, [head, lse](const Tensor& dloss, GradOut& grad) {
        const Sink dx = grad.wants(0) ? grad.add(0) : Sink{};
        Sink dw = grad.wants(1) ? grad.add(1) : Sink{};
        head.for_chunks([&](int64_t begin, int64_t count, Tensor& logits) {
          kernels::cross_entropy_gradient(logits, head.labels.rows(begin, count),
                                          lse.rows(begin, count), head.weights(begin, count, dloss),
                                          head.options);
          head.add_gradients(logits, begin, count, dx, dw);
        });
      });
  return {loss_sum, token_losses};
}

}  // namespace

LmLoss lm_loss(const Tensor& x, const Tensor& w, const Tensor& labels, const Tensor& loss_mask,
               const Tensor& grad_scale, const LmLossOptions& options) {
  const Head head = checked_head(x, w, labels, loss_mask, grad_scale, options);
  const bool recorded = x.runtime().grad_enabled() && (x.requires_grad() || w.requires_grad());
  const bool leaf_or_constant = !w.requires_grad() || w.node()->is_leaf();
  if (recorded && grad_scale.defined() && leaf_or_constant) return gradients_in_forward(head, x, w);
  return gradients_in_backward(head, x, w);
}

Tensor lm_logits(const Tensor& x, const Tensor& w, const LmLossOptions& options) {
  const int64_t vocab = checked_vocab(x, w, options);
  Tensor logits = empty({x.dim(0), vocab}, x.dtype(), x.device());
  kernels::matmul(x.detach(), w.rows(0, vocab), {.transpose_b = true}, {logits, 0.f});
  if (options.logit_softcap != 0) kernels::softcap(logits, options.logit_softcap);
  return logits;
}

}  // namespace phx
