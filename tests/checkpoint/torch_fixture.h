// What scripts/make_torch_fixtures.py puts into its tensors.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/strided_copy.h"
#include "phalanx/core/dtype.h"

namespace phx {

inline Path torch_fixture(const std::string& name) { return Path(PHX_TEST_DATA) / "torch" / name; }

inline double fixture_value(const std::string& name, int64_t index) {
  return double((index * 7 + 3 * int64_t(name.size())) % 251 - 125);
}

// Of a bf16 weight, which is it rounded.
inline double fixture_master(const std::string& name, int64_t index) {
  return fixture_value(name, index) * (1 + 0x1p-10);
}

template <class T>
double number_at(std::span<const std::byte> bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * int64_t(sizeof(T)), sizeof(T));
  if constexpr (std::is_integral_v<T>)
    return double(value);
  else
    return double(acc_t<T>(value));
}

// A box of the source as numbers.
inline std::vector<double> read_numbers(const TensorSource& source, const std::string& name,
                                        const Box& box) {
  const DType dtype = source.tensors().at(name).dtype;
  const int64_t count = *num_elements(box.size);
  std::vector<std::byte> bytes(size_t(count * size_of(dtype)));
  source.read(name, box, bytes);
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(for_any_dtype(dtype, [&]<class T>() { return number_at<T>(bytes, i); }));
  return numbers;
}

inline std::vector<double> read_numbers(const TensorSource& source, const std::string& name) {
  const Dims shape = source.tensors().at(name).shape;
  return read_numbers(source, name, {Dims(shape.size(), 0), shape});
}

// The whole of it, and every box of a matrix that begins at (1, 1), is what the script wrote under
// `saved_name`.
inline void expect_fixture(const TensorSource& source, const std::string& name,
                           const std::string& saved_name) {
  const Dims shape = source.tensors().at(name).shape;
  const auto all = read_numbers(source, name);
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(all[i], fixture_value(saved_name, int64_t(i))) << name << " at " << i;
  if (shape.size() != 2) return;
  for (int64_t rows = 1; rows <= shape[0] - 1; ++rows) {
    const int64_t cols = shape[1] - 1 - rows % 2;
    const auto box = read_numbers(source, name, {{1, 1}, {rows, cols}});
    for (int64_t i = 0; i < rows * cols; ++i)
      ASSERT_EQ(box[size_t(i)], fixture_value(saved_name, (1 + i / cols) * shape[1] + 1 + i % cols))
          << name << ", a box of " << rows << " x " << cols;
  }
}

}  // namespace phx
