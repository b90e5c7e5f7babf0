// A training program with a model, a dataset and a learning-rate schedule of its own, each with its
// flag. docs/own-model.md walks through it.
#include <cmath>
#include <numbers>

#include "phalanx/base/error.h"
#include "phalanx/cli/commands.h"
#include "phalanx/ops/add.h"
#include "phalanx/ops/scale.h"
#include "phalanx/parallel/context/context_attention.h"
#include "phalanx/transformer/self_attention.h"

using namespace phx;

namespace {

// 1. A layer. Differential attention (Ye et al., 2024): the difference of two attentions cancels
// what both look at without need: y = residual + W (attention_1(x) - lambda attention_2(x))
struct DiffOptions {
  double lambda = 0.8;
  template <class Field>
  void each(Field&& field) {
    field("diff-lambda", lambda, "weight of the second attention in deep layers", InRange{0, 1});
  }
};

class DiffAttention : public LayerPart {
 public:
  DiffAttention(const LayerContext& layer, const DiffOptions& options)
      : config_(layer.config),
        layer_(layer.layer),
        lambda_(options.lambda - 0.6 * std::exp(-0.3 * double(layer.layer))),  // less in early ones
        heads_(config_, layer.ranks.tp),
        context_(layer.ranks.context),
        first_(projection(layer)),
        second_(projection(layer)),
        out_(config_.num_attention_heads * heads_.d, config_.hidden_size,
             {.bias = false, .init = Init::normal(config_.residual_std())}, layer.ranks.tp,
             post_norm_spec(config_, layer.ranks.tp)) {
    PHX_CHECK(heads_.key_sharers == 1 && config_.attention_dropout == 0,
              "--model diff needs --attention-dropout 0, and TP of at most --num-query-groups");
    add_child("linear_qkv_1", first_);  // the names in checkpoints
    add_child("linear_qkv_2", second_);
    add_child("linear_proj", out_);
  }
  // [s/tp, b, h] both
  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override {
    PHX_CHECK(call.context.cache == nullptr, "--model diff does not generate");
    const Tensor a = attend(first_, x, call), b = attend(second_, x, call);  // [s, b, n d / tp]
    return out_.add_to(residual, add(a, scale(b, -lambda_)), {config_.hidden_dropout, site_},
                       call.context);
  }
  bool takes_context_parallel() const override { return true; }  // attend() reaches all keys

 private:
  // Norm and fused QKV; heads are cut over the tensor-parallel ranks.
  static NormedLinear projection(const LayerContext& layer) {
    const TransformerConfig& c = layer.config;
    return {norm_spec(c, c.hidden_size, axes_in_sequence(layer.ranks.tp)), c.hidden_size,
            qkv_rows(c, layer.ranks.tp),
            LinearOptions{.bias = false, .init = Init::normal(c.init_method_std)}, layer.ranks.tp};
  }

  Tensor attend(NormedLinear& linear, const Tensor& x, const LayerCall& call) {
    Tensor qkv = linear.forward(x, call.policy.norms);  // [s, b, (n + 2g) d / tp]
    if (config_.layer_uses_rope(layer_))
      qkv = call.rope.apply(std::move(qkv), layer_, {.positions = call.context.positions});
    return context_attention(qkv, {.n = heads_.n, .g = heads_.g, .d = heads_.d},
                             {.causal = true, .scale = config_.softmax_scale()},
                             call.context.packed, context_, layer_);
  }

  const TransformerConfig& config_;
  int64_t layer_;
  double lambda_;
  std::string site_ = "decoder.layers." + std::to_string(layer_) + ".diff_attention.dropout";
  HeadCut heads_;
  ContextParallel context_;
  NormedLinear first_, second_;
  BranchLinear out_;
};

std::vector<NamedPart> diff_layer(const LayerContext& layer, const OwnOptions& options) {
  std::vector<NamedPart> parts = decoder_layer(layer);  // "self_attention", "mlp"
  parts[0] = {"diff_attention", std::make_unique<DiffAttention>(layer, options.get<DiffOptions>())};
  return parts;
}

// 2. A dataset: walks through the vocabulary with a constant stride, which a model can find out.
struct WalkOptions {
  int64_t strides = 7;
  template <class Field>
  void each(Field&& field) {
    field("walk-strides", strides, "how many strides there are", Positive{});
  }
};

class Walks : public SampleSource {
 public:
  Walks(int64_t s, int64_t vocab, int64_t strides, int64_t seed)
      : s_(s), vocab_(vocab), strides_(strides), seed_(seed) {}
  void sample(int64_t index, Sample& out) const override {  // a pure function of the index
    const int64_t start = (index * 7919 + seed_) % vocab_, stride = 1 + index % strides_;
    out.tokens.clear();
    for (int64_t i = 0; i <= s_; ++i) out.tokens.push_back(int32_t((start + i * stride) % vocab_));
    out.labels.assign(out.tokens.begin() + 1, out.tokens.end());
    out.tokens.pop_back();
  }
  std::string description() const override { return "walks"; }

 private:
  int64_t s_, vocab_, strides_, seed_;
};

DatasetsBySplit open_walks(const DatasetCall& call, const OwnOptions& options) {
  const auto part = [&](int64_t seed) {
    return std::make_shared<Walks>(call.request.sample.seq_length, call.vocab_size,
                                   options.get<WalkOptions>().strides, call.request.seed + seed);
  };
  return {part(0), part(1), part(2)};
}

// 3. A learning-rate schedule: cosines that begin anew, each from the peak.
struct RestartOptions {
  int64_t restarts = 3;
  template <class Field>
  void each(Field&& field) {
    field("lr-restarts", restarts, "how often the learning rate rises again", NotNegative{});
  }
};

double restarting_cosine(const LrPoint& point, const OwnOptions& options) {
  const double periods = double(options.get<RestartOptions>().restarts + 1) * point.progress();
  const double t = point.progress() >= 1 ? 1.0 : periods - std::floor(periods);
  return point.least + 0.5 * (1 + std::cos(std::numbers::pi * t)) * (point.most - point.least);
}

}  // namespace

int main(int argc, char** argv) {
  Catalogue catalogue = standard_catalogue();
  catalogue.models.push_back(decoder_of("diff", "a decoder with differential attention", diff_layer,
                                        OwnOptions::of<DiffOptions>()));
  catalogue.datasets.push_back({"walks", "walks through the vocabulary", open_walks, SampleParts{},
                                OwnOptions::of<WalkOptions>()});
  catalogue.lr_schedules.push_back({"restarting-cosine", "cosines that begin anew",
                                    restarting_cosine, OwnOptions::of<RestartOptions>()});
  return phx::main(argc, argv, catalogue);
}
