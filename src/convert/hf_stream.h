// A model's weights under Hugging Face's names, one tensor after the other, without a folder: for
// programs that hand weights on (to an inference server, say) while they still train.
//
//   for_each_hf_tensor(open_checkpoint("out/run"), {.model = config},
//                      [](const std::string& name, const HfTensor& tensor) {
//                        send(name, tensor); });
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "phalanx/convert/hf_model.h"

namespace phx {

// Valid during the call only.
struct HfTensor {
  TensorInfo info;                   // as it is handed on
  std::span<const std::byte> bytes;  // row-major
};

// Calls f for each tensor, in the order of the layers. `ours`: tensors under Megatron's names;
// optimizer state among them is left out. Of `what` the model, the family and the dtype are used.
// Only one tensor is in memory at a time. Returns the family.
const Family& for_each_hf_tensor(
    std::shared_ptr<const TensorSource> ours, const HfExport& what,
    const std::function<void(const std::string& name, const HfTensor& tensor)>& f);

}  // namespace phx
