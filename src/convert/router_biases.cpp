#include "phalanx/convert/router_biases.h"

#include <algorithm>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/convert/renamed_source.h"

namespace phx {
namespace {

constexpr const char* kOurs = "mlp.router.expert_bias";

const TensorRow* bias_row(const Family& family) {
  for (const TensorRow& row : family.layer_tensors)
    if (std::string_view(row.ours) == kOurs) return &row;
  return nullptr;
}

class WithZeros : public TensorSource {
 public:
  WithZeros(std::shared_ptr<const TensorSource> source, const TensorInfos& zeros)
      : source_(std::move(source)), zeros_(zeros), tensors_(source_->tensors()) {
    tensors_.insert(zeros.begin(), zeros.end());
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

void check_zero(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.tensors().at(name);
  const Box box = whole_box(info.shape);
  std::vector<std::byte> bytes(size_t(box.numel() * size_of(info.dtype)));
  source.read(name, box, bytes);
  PHX_CHECK(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }),
            source.description(), ": ", name,
            " is not zero, and biases of experts are not taken from such folders yet");
}

}  // namespace

std::shared_ptr<const TensorSource> without_router_biases(std::shared_ptr<const TensorSource> hf,
                                                          const Family& family) {
  const TensorRow* row = bias_row(family);
  if (row == nullptr) return hf;
  const std::string end = std::string(".") + row->hf;
  for (const auto& [name, info] : hf->tensors())
    if (name.ends_with(end)) check_zero(*hf, name);
  return std::make_shared<RenamedSource>(std::move(hf), [&](const std::string& name) {
    return name.ends_with(end) ? std::nullopt : std::optional(name);
  });
}

std::shared_ptr<const TensorSource> with_router_biases(std::shared_ptr<const TensorSource> hf,
                                                       const Family& family,
                                                       const TransformerConfig& model) {
  const TensorRow* row = bias_row(family);
  if (row == nullptr) return hf;
  TensorInfos zeros;
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    if (model.moe.has_experts(layer))
      zeros[str_cat(family.layers, layer, ".", row->hf)] = {DType::f32, {*model.moe.num_experts}};
  return std::make_shared<WithZeros>(std::move(hf), zeros);
}

std::vector<std::string> hf_order(const std::vector<TensorPair>& pairs, const TensorSource& hf) {
  std::vector<std::string> order;
  for (const TensorPair& pair : pairs)
    for (const TensorPair::Theirs& tensor : pair.hf) order.push_back(tensor.name);
  const std::set<std::string> known(order.begin(), order.end());
  for (const auto& [name, info] : hf.tensors())
    if (!known.contains(name)) order.push_back(name);
  return order;
}

}  // namespace phx
