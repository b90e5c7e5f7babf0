#include "checkpoint/one_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "base/error.h"

namespace phx {

namespace {

Tensor local_view(const ParameterStore& store, size_t i, const Tensor& flat) {
  const Shape shape = store.parameters()[i]->local_shape();
  return flat.rows(store.offset_of(i), shape.numel()).reshape(shape);
}

std::string iteration_folder(int64_t iteration) {
  std::string digits = std::to_string(iteration);
  return "iter_" + std::string(digits.size() < 7 ? 7 - digits.size() : 0, '0') + digits;
}

std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i) text += "\n    " + names[i];
  if (names.size() > 5) text += str_cat("\n    and ", names.size() - 5, " more");
  return text;
}

constexpr DType kFloats[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

bool convertible(const std::string& dtype) {
  return std::ranges::any_of(kFloats,
                             [&](DType known) { return safetensors_dtype(known) == dtype; });
}

std::vector<std::byte> converted(const SafetensorsFile::Tensor& tensor, DType wanted) {
  const DType given = *std::ranges::find_if(
      kFloats, [&](DType known) { return safetensors_dtype(known) == tensor.dtype; });
  const auto count = int64_t(tensor.bytes.size()) / size_of(given);
  std::vector<std::byte> result(size_t(count * size_of(wanted)));
  for_float_dtype(given, [&]<class From>() {
    for_float_dtype(wanted, [&]<class To>() {
      for (int64_t i = 0; i < count; ++i) {
        From from;
        std::memcpy(&from, tensor.bytes.data() + i * int64_t(sizeof(From)), sizeof(From));
        const To to = To(acc_t<To>(acc_t<From>(from)));
        std::memcpy(result.data() + i * int64_t(sizeof(To)), &to, sizeof(To));
      }
    });
  });
  return result;
}

}  // namespace

std::string safetensors_dtype(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "F64";
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
    case DType::f8e4m3:
      return "F8_E4M3";
    case DType::f8e5m2:
      return "F8_E5M2";
    case DType::i64:
      return "I64";
    case DType::i32:
      return "I32";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
  }
  return "";
}

Path checkpoint_file(const Path& folder, int64_t iteration) {
  return folder / iteration_folder(iteration) / "model.safetensors";
}

std::optional<int64_t> latest_checkpoint(const Path& folder) {
  const Path tracker = folder / "latest_checkpointed_iteration.txt";
  if (!std::filesystem::exists(tracker)) return std::nullopt;
  const std::string text = read_file(tracker);
  int64_t iteration = 0;
  const char* end = text.data() + text.find_last_not_of(" \n\r\t") + 1;
  const auto parsed = std::from_chars(text.data(), end, iteration);
  if (parsed.ec == std::errc() && parsed.ptr == end && iteration >= 0) return iteration;
  throw_error(str_cat(tracker.string(), " should hold an iteration's number, but holds '",
                      text.substr(0, 40), "'"));
}

namespace {

// f(offset in the global bytes, offset in the local bytes, bytes) for every row of every piece.
template <class F>
void for_rows(const Parameter& parameter, int64_t element, F&& f) {
  for (const Piece& piece : parameter.spec().pieces) {
    for (int64_t row = 0; row < piece.rows; ++row) {
      const int64_t global = (piece.global_row + row) * parameter.columns() + piece.global_col;
      const int64_t local = (piece.local_row + row) * parameter.local_columns() + piece.local_col;
      f(global * element, local * element, piece.cols * element);
    }
  }
}

}  // namespace

std::vector<std::byte> to_global(const Parameter& parameter, const Tensor& local) {
  std::vector<std::byte> from(local.bytes());
  copy_to_host(local, from.data());
  const int64_t element = size_of(local.dtype());
  std::vector<std::byte> to(parameter.spec().global_shape.numel() * element);
  for_rows(parameter, element, [&](int64_t global_at, int64_t local_at, int64_t bytes) {
    std::memcpy(to.data() + global_at, from.data() + local_at, bytes);
  });
  return to;
}

void from_global(const Parameter& parameter, std::span<const std::byte> global, Tensor& local) {
  const int64_t element = size_of(local.dtype());
  PHX_ASSERT(int64_t(global.size()) == parameter.spec().global_shape.numel() * element,
             "wrong size for ", parameter.name());
  std::vector<std::byte> to(local.bytes());  // zero: padding rows
  for_rows(parameter, element, [&](int64_t global_at, int64_t local_at, int64_t bytes) {
    std::memcpy(to.data() + local_at, global.data() + global_at, bytes);
  });
  copy_from_host(local, to.data());
  local.runtime().synchronize();  // `to` ends here
}

void save_checkpoint(const Path& folder, int64_t iteration, const ParameterStore& store,
                     std::span<const FlatState> states, const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  for (const FlatState& state : states) {
    for (const Parameter* parameter : store.parameters()) {
      const auto dims = parameter->spec().global_shape.dims();
      entries.push_back({state.prefix + parameter->name(),
                         safetensors_dtype(state.flat.dtype()),
                         {dims.begin(), dims.end()}});
    }
  }
  const Path path = checkpoint_file(folder, iteration);
  make_folder(path.parent_path());
  SafetensorsWriter writer(path, entries, metadata);
  for (const FlatState& state : states) {
    for (size_t i = 0; i < store.parameters().size(); ++i) {
      const Parameter& parameter = *store.parameters()[i];
      writer.append(state.prefix + parameter.name(),
                    to_global(parameter, local_view(store, i, state.flat)));
    }
  }
  writer.commit();
  write_file(folder / "latest_checkpointed_iteration.txt", std::to_string(iteration));
}

void load_checkpoint(const SafetensorsFile& file, const ParameterStore& store,
                     std::span<const FlatState> states, std::span<const std::string> ignored) {
  // Everything is checked before anything is overwritten.
  std::set<std::string> wanted;
  std::vector<std::string> missing, different, unexpected;
  for (const FlatState& state : states) {
    for (const Parameter* parameter : store.parameters()) {
      const std::string name = state.prefix + parameter->name();
      wanted.insert(name);
      const SafetensorsFile::Tensor* tensor = file.find(name);
      const Shape& shape = parameter->spec().global_shape;
      if (tensor == nullptr) {
        missing.push_back(name);
      } else if (!std::ranges::equal(tensor->shape, shape.dims()) ||
                 (tensor->dtype != safetensors_dtype(state.flat.dtype()) &&
                  !(states.size() == 1 && convertible(tensor->dtype)))) {
        different.push_back(str_cat(name, ": the file has ", tensor->dtype, " ",
                                    Shape(tensor->shape), ", the model ",
                                    safetensors_dtype(state.flat.dtype()), " ", shape));
      }
    }
  }
  for (const auto& tensor : file.tensors()) {
    const bool skip = std::ranges::any_of(
        ignored, [&](const std::string& prefix) { return tensor.name.starts_with(prefix); });
    if (!skip && !wanted.contains(tensor.name)) unexpected.push_back(tensor.name);
  }
  if (!missing.empty() || !different.empty() || !unexpected.empty()) {
    throw_error(str_cat(
        file.path().string(), " does not fit the model",
        missing.empty() ? ""
                        : str_cat("\n  missing in the file: ", missing.size(), some_of(missing)),
        different.empty() ? "" : str_cat("\n  different: ", different.size(), some_of(different)),
        unexpected.empty()
            ? ""
            : str_cat("\n  not in the model: ", unexpected.size(), some_of(unexpected))));
  }
  for (const FlatState& state : states) {
    for (size_t i = 0; i < store.parameters().size(); ++i) {
      const Parameter& parameter = *store.parameters()[i];
      Tensor local = local_view(store, i, state.flat);
      const SafetensorsFile::Tensor& tensor = file.at(state.prefix + parameter.name());
      if (tensor.dtype == safetensors_dtype(local.dtype())) {
        from_global(parameter, tensor.bytes, local);
      } else {
        from_global(parameter, converted(tensor, local.dtype()), local);
      }
    }
  }
}

}  // namespace phx
