#include "train/session.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace phx {

DType model_dtype(Precision precision) {
  switch (precision) {
    case Precision::fp64: return DType::f64;
    case Precision::fp32: return DType::f32;
    case Precision::bf16: return DType::bf16;
    case Precision::fp16: return DType::f16;
  }
  return DType::f32;
}

RecomputePolicy recompute_policy(const TrainConfig& config) {
  RecomputePolicy policy;
  if (!config.recompute_granularity) return policy;
  if (*config.recompute_granularity == RecomputeGranularity::full) {
    policy.layers = config.recompute_method == RecomputeMethod::block ? RecomputePolicy::Layers::block
                                                                      : RecomputePolicy::Layers::uniform;
    policy.num_layers = config.recompute_num_layers.value_or(1);
    return policy;
  }
  policy.core_attention = config.recompute_core_attention();
  policy.mlp = std::ranges::find(config.recompute_modules, "mlp") != config.recompute_modules.end();
  return policy;
}

FlopsShape flops_shape(const TransformerConfig& config) {
  return {.num_layers = config.num_layers,
          .hidden = config.hidden_size,
          .ffn_hidden = config.ffn_size(),
          .num_heads = config.num_attention_heads,
          .num_groups = config.query_groups(),
          .head_size = config.head_dim(),
          .padded_vocab = config.padded_vocab(),
          .swiglu = config.swiglu};
}

namespace {

struct Sources {
  std::shared_ptr<const SampleSource> train, valid;
};

// The second of the three shares of --split.
double valid_fraction(const std::string& split) {
  std::string text = split;
  std::ranges::replace(text, ',', ' ');
  std::istringstream in(text);
  double share = 0, total = 0, second = 0;
  for (int i = 0; in >> share; ++i) {
    total += share;
    if (i == 1) second = share;
  }
  PHX_CHECK(total > 0, "--split ", split, " has no share above 0");
  return second / total;
}

// Mock validation reads the same endless text, a million samples on.
class Shifted : public SampleSource {
 public:
  Shifted(std::shared_ptr<const SampleSource> source, int64_t by) : source_(std::move(source)), by_(by) {}
  void sample(int64_t index, std::span<int32_t> out) const override { source_->sample(index + by_, out); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t by_;
};

Sources make_sources(const RunConfig& config) {
  const int64_t vocab = config.model.vocab_size.value_or(config.model.padded_vocab());
  const int64_t s = config.model.seq_length;
  if (config.data.mock_data) {
    const auto mock = std::make_shared<MockSource>(int32_t(vocab), int32_t(vocab - 1));
    return {mock, std::make_shared<Shifted>(mock, 1'000'000)};
  }
  PHX_CHECK(!config.data.token_file.empty(),
            "there is nothing to train on\n  hint: --mock-data, or --token-file FILE.u16");
  const auto file = std::make_shared<TokenFile>(config.data.token_file);
  const double share = valid_fraction(config.data.split);
  const auto seed = uint64_t(config.train.seed);
  Sources sources;
  sources.train = std::make_shared<TokenFileSource>(file, Split::train, s, share, seed);
  if (share > 0) sources.valid = std::make_shared<TokenFileSource>(file, Split::valid, s, share, seed);
  return sources;
}

BatchLoader loader(const RunConfig& config, std::shared_ptr<const SampleSource> source, Device device) {
  return BatchLoader(std::move(source),
                     {.micro_batch = config.train.micro_batch_size,
                      .num_micro_batches = config.train.num_micro_batches(),
                      .seq_length = config.model.seq_length},
                     config.model.vocab_size.value_or(config.model.padded_vocab()), device);
}

}  // namespace

Session::Session(const RunConfig& run, Device device)
    : config(run),
      model(run.model, recompute_policy(run.train)),
      store(model, device,
            {.dtype = model_dtype(run.train.precision()), .seed = uint64_t(run.train.seed)}),
      optimizer(store, run.optim),
      step(model, store, optimizer, run.optim, uint64_t(run.train.seed)),
      train_batches(loader(run, make_sources(run).train, device)) {
  device.runtime().allocator().use_arena(run.train.arena);
  model.prepare(device, store.weights().dtype(), run.model.seq_length, run.train.micro_batch_size);
  const Sources sources = make_sources(run);
  data_description = sources.train->description();
  if (sources.valid) valid_batches.emplace(loader(run, sources.valid, device));
}

}  // namespace phx
