// What PyTorch computes for whole models: tests/data/oracle/README.md says what the files hold.
#pragma once

#include <cstring>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/core/tensor.h"
#include "support/gradients.h"

namespace phx::testing {

inline std::string oracle_path(const std::string& family) {
  return std::string(PHX_TEST_DATA) + "/oracle/" + family + ".safetensors";
}

inline std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

template <class T>
std::vector<T> values(const SafetensorsFile::Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

inline std::vector<double> doubles(const SafetensorsFile::Tensor& tensor) {
  if (tensor.dtype == "F64") return values<double>(tensor);
  const auto floats = values<float>(tensor);
  return {floats.begin(), floats.end()};
}

// [b, s] as the files have it -> i64 [s, b].
inline Tensor tokens_of(std::span<const int64_t> rows, int64_t b, int64_t s, Device device) {
  std::vector<int64_t> columns(b * s);
  for (int64_t i = 0; i < b; ++i)
    for (int64_t j = 0; j < s; ++j) columns[j * b + i] = rows[i * s + j];
  return from_ints(columns, {s, b}, DType::i64, device);
}

// A parameter's own part of global values.
inline void set_parameter(const Parameter& parameter, const std::vector<double>& wide) {
  Tensor local = parameter.value();
  const Tensor global =
      from_values(wide, parameter.spec().global_shape, local.dtype(), local.device());
  from_global(parameter,
              std::span(static_cast<const std::byte*>(global.raw()), size_t(global.bytes())),
              local);
}

}  // namespace phx::testing
