#include "phalanx/checkpoint/torch/torch_object.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/zip.h"

namespace phx {
namespace {

using Json = nlohmann::json;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class ObjectPickler {
 public:
  void value(const Json& value) {
    if (value.is_boolean()) return writer_.boolean(value.get<bool>());
    if (value.is_number_integer()) return writer_.integer(value.get<int64_t>());
    if (value.is_number()) return writer_.real(value.get<double>());
    if (value.is_string()) return writer_.text(value.get<std::string>());
    if (value.is_array()) {
      return writer_.list([&] {
        for (const auto& item : value) this->value(item);
      });
    }
    if (value.is_object()) return object(value);
    writer_.none();
  }

  const std::string& finish() { return writer_.finish(); }
  const std::vector<std::vector<float>>& storages() const { return storages_; }

 private:
  void object(const Json& value) {
    if (value.size() == 1 && value.contains("$tensor")) return tensor(value["$tensor"]);
    if (value.size() == 1 && value.contains("$namespace"))
      return writer_.object("argparse", "Namespace", [&] { dict(value["$namespace"]); });
    if (value.size() == 1 && value.contains("$numbered")) return numbered(value["$numbered"]);
    dict(value);
  }

  void numbered(const Json& values) {
    writer_.dict([&] {
      for (size_t i = 0; i < values.size(); ++i) {
        writer_.integer(static_cast<int64_t>(i));
        this->value(values[i]);
      }
    });
  }

  void dict(const Json& value) {
    writer_.dict([&] {
      for (const auto& [key, item] : value.items()) {
        writer_.text(key);
        this->value(item);
      }
    });
  }

  void tensor(const Json& numbers) {
    const bool scalar = !numbers.is_array();
    storages_.push_back(scalar ? std::vector<float>{numbers.get<float>()}
                               : numbers.get<std::vector<float>>());
    const auto count = static_cast<int64_t>(storages_.back().size());
    const std::vector<int64_t> shape = scalar ? std::vector<int64_t>() : std::vector{count};
    const std::vector<int64_t> strides(shape.size(), 1);
    writer_.call("torch._utils", "_rebuild_tensor_v2", [&] {
      writer_.persistent([&] {
        writer_.text("storage");
        writer_.global("torch", "FloatStorage");
        writer_.text(std::to_string(storages_.size() - 1));
        writer_.text("cpu");
        writer_.integer(count);
      });
      writer_.integer(0);
      writer_.integers(shape);
      writer_.integers(strides);
      writer_.boolean(false);
      writer_.call("collections", "OrderedDict", [] {});
    });
  }

  PickleWriter writer_;
  std::vector<std::vector<float>> storages_;
};

}  // namespace

std::string saved_object(const Json& value) {
  ObjectPickler pickler;
  pickler.value(value);
  std::string file;
  ZipWriter zip([&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  zip.add("archive/data.pkl", bytes_of(pickler.finish()));
  zip.add("archive/byteorder", bytes_of("little"));
  for (size_t i = 0; i < pickler.storages().size(); ++i)
    zip.add(str_cat("archive/data/", i), std::as_bytes(std::span(pickler.storages()[i])));
  zip.add("archive/version", bytes_of("3\n"));
  zip.finish();
  return file;
}

}  // namespace phx
