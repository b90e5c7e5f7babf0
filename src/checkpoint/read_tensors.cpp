#include "phalanx/checkpoint/read_tensors.h"

#include <cstring>
#include <type_traits>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"

namespace phx {

std::shared_ptr<const NativeCheckpoint> open_checkpoint(const Path& folder,
                                                        std::optional<int64_t> iteration) {
  if (!iteration)
    if (const auto found = checkpoint_to_load(folder)) iteration = found->iteration;
  PHX_CHECK(iteration.has_value(), folder.string(),
            " holds no checkpoint (no latest_checkpointed_iteration.txt)\n  hint: the folder that "
            "--save named, not the iter_* folder in it");
  return std::make_shared<NativeCheckpoint>(find_checkpoint(folder, *iteration));
}

std::vector<double> values_of(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values;
  values.reserve(bytes.size() / size_t(size_of(dtype)));
  for_any_dtype(dtype, [&]<class T>() {
    for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + at, sizeof(T));
      if constexpr (std::is_arithmetic_v<T>)
        values.push_back(double(value));
      else
        values.push_back(double(float(value)));
    }
  });
  return values;
}

std::vector<double> read_values(const TensorSource& source, const std::string& name) {
  const auto found = source.tensors().find(name);
  PHX_CHECK(found != source.tensors().end(), source.description(), " holds no tensor ", name);
  return read_values(source, name, whole_box(found->second.shape));
}

std::vector<double> read_values(const TensorSource& source, const std::string& name,
                                const Box& box) {
  const auto found = source.tensors().find(name);
  PHX_CHECK(found != source.tensors().end(), source.description(), " holds no tensor ", name);
  std::vector<std::byte> bytes(size_t(box.numel() * size_of(found->second.dtype)));
  source.read(name, box, bytes);
  return values_of(found->second.dtype, bytes);
}

}  // namespace phx
