#include "phalanx/convert/loaded_model.h"

#include "phalanx/checkpoint/loader.h"

namespace phx {

LoadedModel::LoadedModel(std::unique_ptr<Model> made, const TensorSource& source, DType dtype,
                         Device device, int64_t length)
    : model(std::move(made)),
      store(*model, device, {.dtype = dtype, .gradients = false, .initialize = false}),
      buffers(*model, device, {.dtype = acc_dtype(dtype), .buffers = true}) {
  const FlatState weights{"", store.weights()}, kept{"", buffers.weights()};
  TensorInfos expected = tensors_of(store, {&weights, 1});
  if (!buffers.parameters().empty())
    expected = with_buffers(std::move(expected), source, tensors_of(buffers, {&kept, 1}));
  load_parameters(source, store, {&weights, 1},
                  {.ignored = {"optimizer."}, .convert = true, .model = &expected});
  load_buffers(source, buffers);
  model->prepare(device, dtype, length, /*micro_batch=*/1);
}

}  // namespace phx
