// Files of torch.save made by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/zip.h"

namespace phx {

// A tensor that Python code gave attributes: a function, a class, the function's arguments and the
// attributes.
inline std::string attributed_file(const char* function, const char* type) {
  PickleWriter writer;
  writer.dict([&] {
    writer.text("x");
    writer.call("torch._tensor", "_rebuild_from_type_v2", [&] {
      writer.global("torch._utils", function);
      writer.global("torch", type);
      writer.tuple([&] {
        writer.persistent([&] {
          writer.text("storage");
          writer.global("torch", "FloatStorage");
          writer.text("0");
          writer.text("cpu");
          writer.integer(2);
        });
        writer.integer(0);
        writer.integers(std::vector<int64_t>{2});
        writer.integers(std::vector<int64_t>{1});
      });
      writer.dict([&] {
        writer.text("shared");
        writer.boolean(true);
      });
    });
  });
  std::string bytes;
  ZipWriter zip([&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  zip.add("a/data.pkl", as_bytes(writer.finish()));
  const float numbers[] = {3, 5};
  zip.add("a/data/0", std::as_bytes(std::span(numbers)));
  zip.finish();
  return bytes;
}

// A torch.save file with one float tensor as the numbers describe it, over 6 floats; `model`: as
// the only weight of a Megatron rank.
inline std::string tensor_file(std::vector<int64_t> sizes, std::vector<int64_t> strides,
                               int64_t offset, const char* storage = "FloatStorage",
                               const char* key = "0", bool model = false) {
  PickleWriter writer;
  const auto dict = [&] {
    writer.text("x");
    writer.call("torch._utils", "_rebuild_tensor_v2", [&] {
      writer.persistent([&] {
        writer.text("storage");
        writer.global("torch", storage);
        writer.text(key);
        writer.text("cpu");
        writer.integer(6);
      });
      writer.integer(offset);
      writer.integers(sizes);
      writer.integers(strides);
    });
  };
  writer.dict([&] {
    if (!model) return dict();
    writer.text("checkpoint_version");
    writer.real(3.0);
    writer.text("model");
    writer.dict(dict);
  });
  std::string bytes;
  ZipWriter zip([&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  zip.add("a/data.pkl", as_bytes(writer.finish()));
  zip.add("a/data/0", as_bytes(std::string(24, '\0')));
  zip.finish();
  return bytes;
}

}  // namespace phx
