#include "phalanx/checkpoint/torch/torch_states.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/master_fit.h"

namespace phx {
namespace {

constexpr int64_t kCompared = 1024;  // elements of a weight that are held against its master

}  // namespace

bool flag_at(const nlohmann::json& args, const char* key) {
  const auto found = args.find(key);
  return found != args.end() && found->is_boolean() && found->get<bool>();
}

const PickleValue& inner_optimizer(const PickleValue& optimizer) {
  const PickleValue* inner = optimizer.find("optimizer");
  return inner != nullptr && inner->is(PickleValue::Kind::dict) ? *inner : optimizer;
}

void check_master(const std::string& where, const std::string& name, const TorchTensor& weight,
                  const TorchTensor& master) {
  Box box = whole_box(weight.info.shape);
  int64_t left = kCompared;
  for (size_t i = box.size.size(); i-- > 0; left /= std::max<int64_t>(1, box.size[i]))
    box.size[i] = std::min(box.size[i], std::max<int64_t>(1, left));
  const Dims strides = dense_strides(box.size);
  const auto copy = [&](const TorchTensor& tensor, std::byte* to) {
    TorchTensor unchecked = tensor;  // opening a folder should not read all of it
    unchecked.entry = nullptr;
    unchecked.copy(box, {to, strides});
  };
  const auto count = static_cast<size_t>(box.numel());
  std::vector<std::byte> weights(count * static_cast<size_t>(size_of(weight.info.dtype)));
  std::vector<float> masters(count);
  copy(weight, weights.data());
  copy(master, reinterpret_cast<std::byte*>(masters.data()));
  const auto misfit = master_misfit(weight.info.dtype, weights, masters);
  PHX_CHECK(!misfit, where, ": the fp32 copy of ", name, " has ", misfit->master,
            " where the weight is ", misfit->weight,
            ": the weights were changed after this state was saved, or the state is laid out in a "
            "way that is not known here");
}

}  // namespace phx
