// A second family of models: a bidirectional encoder whose head reads the sum of all layers'
// outputs. It is not causal, its messages between pipeline stages have two tensors, and the library
// does not know of it: a program gives it in its catalogue.
#include <gtest/gtest.h>

#include "phalanx/nn/norm.h"
#include "phalanx/ops/add.h"
#include "phalanx/parallel/tensor/layers.h"
#include "phalanx/transformer/block.h"
#include "phalanx/transformer/self_attention.h"
#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

class Encoder : public Model {
 public:
  Encoder(const TransformerConfig& config, const ModelOptions& options)
      : config_(config), options_(options) {
    const TensorParallel& tp = options.ranks.tp;
    const int64_t padded = config.padded_vocab(tp.size()), h = config.hidden_size;
    if (options.part.begin) {
      words_.emplace(*config.vocab_size, h, Init::normal(0.02), padded, tp);
      add_child("embedding", *words_);
    }
    const int64_t first = options.part.first_layer;
    for (int64_t i = first; i < first + options.part.num_layers.value_or(config.num_layers); ++i) {
      layers_.push_back(
          std::make_unique<TransformerLayer>(decoder_layer({config_, options.ranks, i})));
      add_child("layers." + std::to_string(i), *layers_.back());
    }
    if (!options.part.end) return;
    norm_.emplace(norm_spec(config, h, axes_in_sequence(tp)));
    add_child("norm", *norm_);
    head_.emplace(*config.vocab_size, h, Init::normal(0.02), padded, tp);
    add_child("head", *head_);
  }

  void prepare(Device device, DType dtype, int64_t length, int64_t) override {
    const HeadCut heads(config_, options_.ranks.tp);
    rope_.emplace(config_, heads.n + heads.g, length, acc_dtype(dtype), device);
  }
  const ModelPart& part() const override { return options_.part; }
  MessageSpec input(const MicroBatchShape& shape) const override {
    return options_.part.begin ? MessageSpec{} : message(shape);
  }
  MessageSpec output(const MicroBatchShape& shape) const override {
    return options_.part.end ? MessageSpec{} : message(shape);
  }

  ModelOutput forward(const StageMessage& input, const Batch& batch, const Tensor& grad_scale,
                      const ForwardContext& given) override {
    const bool begin = options_.part.begin;
    ForwardContext context = given;
    context.causal = false;
    Tensor x = begin ? words_->forward(batch.tensors.at("tokens"), 1.0) : input.at("hidden");
    Tensor sum = begin ? x : input.at("sum");  // [s/tp, b, h], as x
    for (const auto& layer : layers_) {
      x = layer->forward(x, {*rope_, context, options_.recompute});  // [s/tp, b, h]
      sum = add(sum, x);                                             // [s/tp, b, h]
    }
    if (!options_.part.end) return {.message = {{"hidden", x}, {"sum", sum}}};
    const TensorParallel& tp = options_.ranks.tp;
    const Tensor y = enter_region(norm_->forward(sum), tp);  // [s, b, h]
    const Tensor& labels = batch.tensors.at("labels");       // [s, b]
    return {.loss_sum =
                options_.loss.sum({.hidden = y.reshape({labels.numel(), config_.hidden_size}),
                                   .weight = head_->weight().acquire(),
                                   .labels = labels.reshape({labels.numel()}),
                                   .loss_mask = {},
                                   .grad_scale = grad_scale,
                                   .head = {.vocab = *config_.vocab_size,
                                            .first_class = head_->first_row(),
                                            .class_ranks = tp.size() > 1 ? tp.group : nullptr}},
                                  options_.loss.options)};
  }

 private:
  MessageSpec message(const MicroBatchShape& shape) const {
    const Shape rows{options_.ranks.tp.sequence_rows(shape.s), shape.b, config_.hidden_size};
    return {{"hidden", rows, shape.dtype}, {"sum", rows, shape.dtype}};
  }

  TransformerConfig config_;
  ModelOptions options_;
  std::optional<VocabTable> words_, head_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::optional<NormModule> norm_;
  std::optional<RopeTables> rope_;
};

RunConfig run_of_an_encoder() {
  RunConfig config = tiny_run();
  config.catalogue.models.push_back(
      {.name = "encoder",
       .help = "an example",
       .make = [](const TransformerConfig& model, const ModelOptions& options) {
         return std::make_unique<Encoder>(model, options);
       }});
  config.family = config.catalogue.model("encoder");
  config.model.num_layers = 4;
  config.train.fp64 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  return config;
}

TEST(EncoderFamily, TrainsOnEveryAxisAsOnOneRank) {
  RunConfig config = run_of_an_encoder();
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.use_distributed_optimizer = true;
  const Parity parity = compare(run_layout(config, 8), run_layout(on_one_rank(config, 8), 1));
  EXPECT_EQ(parity.faults(), std::vector<std::string>{});
}

TEST(EncoderFamily, ATokenSeesThoseBehindIt) {
  const RunConfig config = run_of_an_encoder();
  Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
  const std::unique_ptr<Model> model =
      config.family(config.model, {.part = {.num_layers = 2, .end = false}});
  const ParameterStore store(*model, runtime.device(), {.dtype = DType::f64, .gradients = false});
  model->prepare(runtime.device(), DType::f64, 4, 1);
  const auto first_row = [&](int64_t last_token) {
    const std::vector<int64_t> ids{1, 2, 3, last_token};
    const Tensor tokens = from_ints(ids, {4, 1}, DType::i64, runtime.device());
    const ModelOutput out =
        model->forward({}, {.tensors = {{"tokens", tokens}}}, {}, {.training = false});
    EXPECT_EQ(out.message.size(), 2u);
    return to_values(out.message.at("hidden").rows(0, 1));
  };
  EXPECT_EQ(first_row(4), first_row(4));
  EXPECT_NE(first_row(4), first_row(5));
}

}  // namespace
}  // namespace phx
