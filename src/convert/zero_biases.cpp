#include "phalanx/convert/zero_biases.h"

#include <algorithm>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr std::string_view kBias = "mlp.router.expert_bias";

class WithZeros : public TensorSource {
 public:
  WithZeros(std::shared_ptr<const TensorSource> source, TensorInfos zeros)
      : source_(std::move(source)), zeros_(std::move(zeros)), tensors_(source_->tensors()) {
    tensors_.insert(zeros_.begin(), zeros_.end());
  }
  const TensorInfos& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
    if (!zeros_.contains(name)) return source_->read(name, box, out);
    std::ranges::fill(out, std::byte{0});
  }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const TensorSource> source_;
  TensorInfos zeros_, tensors_;
};

}  // namespace

bool has_expert_biases(const Family& family) {
  return std::ranges::any_of(family.layer_tensors,
                             [](const TensorRow& row) { return row.ours == kBias; });
}

void add_zero_biases(TransformerConfig& model, std::shared_ptr<const TensorSource>& tensors) {
  if (!model.moe.any() || model.moe.moe_router_enable_expert_bias) return;
  TensorInfos zeros;
  const auto add = [&](const std::string& layer) {
    zeros[str_cat(layer, ".", kBias)] = {DType::f32, {*model.moe.num_experts}};
  };
  for (int64_t layer = 0; layer < model.all_layers(); ++layer) {
    if (!model.has_experts(layer)) continue;
    if (layer < model.num_layers)
      add(str_cat("decoder.layers.", layer));
    else
      add(str_cat("mtp.layers.", layer - model.num_layers, ".transformer_layer"));
  }
  tensors = std::make_shared<WithZeros>(std::move(tensors), std::move(zeros));
  model.moe.moe_router_enable_expert_bias = true;
}

}  // namespace phx
