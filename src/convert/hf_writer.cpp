#include "phalanx/convert/hf_writer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "phalanx/base/atomic_folder.h"
#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/option_values.h"
#include "phalanx/checkpoint/safetensors.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSlabBytes = 16 << 20;

int64_t bytes_of(const TensorInfo& info) {
  int64_t bytes = size_of(info.dtype);
  for (const int64_t extent : info.shape) bytes *= extent;
  return bytes;
}

// As it will be in the file.
TensorInfo written_info(const TensorSource& source, const std::string& name,
                        const HfWriteOptions& options) {
  TensorInfo written = source.tensors().at(name);
  if (options.dtype && is_float(written.dtype) && !options.own_types.contains(name))
    written.dtype = *options.dtype;
  return written;
}

using Shard = std::vector<std::string>;

std::vector<Shard> plan_shards(const TensorSource& source, const std::vector<std::string>& order,
                               const HfWriteOptions& options) {
  std::vector<Shard> shards(1);
  int64_t filled = 0;
  for (const std::string& name : order) {
    const int64_t bytes = bytes_of(written_info(source, name, options));
    if (!shards.back().empty() && filled + bytes > options.max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(name);
    filled += bytes;
  }
  return shards;
}

void write_shard(const Path& path, const TensorSource& source, const Shard& names,
                 const HfWriteOptions& options) {
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : names) {
    const TensorInfo info = written_info(source, name, options);
    entries.push_back({name, safetensors_dtype(info.dtype), info.shape});
  }
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});  // transformers asks for it
  std::vector<std::byte> buffer, converted;
  for (const std::string& name : names) {
    const TensorInfo& info = source.tensors().at(name);
    const DType dtype = written_info(source, name, options).dtype;
    for_each_slab(info, kSlabBytes, [&](const Box& box) {
      buffer.resize(size_t(box.numel() * size_of(info.dtype)));
      source.read(name, box, buffer);
      if (dtype == info.dtype) return writer.append(name, buffer);
      converted.resize(size_t(box.numel() * size_of(dtype)));
      convert_floats(info.dtype, buffer, dtype, converted);
      writer.append(name, converted);
    });
  }
  writer.commit();
}

std::string padded(size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
}

void write_weights(const Path& folder, const TensorSource& source,
                   const std::vector<std::string>& order, const HfWriteOptions& options) {
  const std::vector<Shard> shards = plan_shards(source, order, options);
  if (shards.size() == 1) {
    write_shard(folder / "model.safetensors", source, shards[0], options);
    return;
  }
  Json map = Json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file =
        "model-" + padded(i + 1) + "-of-" + padded(shards.size()) + ".safetensors";
    write_shard(folder / file, source, shards[i], options);
    for (const std::string& name : shards[i]) {
      map[name] = file;
      total += bytes_of(written_info(source, name, options));
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file(folder / "model.safetensors.index.json", json_text(index, 2) + "\n");
}

}  // namespace

int64_t parse_size(const std::string& text) {
  static const std::map<std::string, double> kUnits = {
      {"", 1},      {"B", 1},         {"KB", 1e3},      {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto unit = kUnits.find(text.substr(end));
  double bytes = 0;
  if (unit != kUnits.end() && end > 0) {
    try {
      bytes = std::floor(parse_number(text.substr(0, end)) * unit->second);
    } catch (const Error&) {
      bytes = 0;
    }
  }
  PHX_CHECK(bytes >= 1 && bytes < 1e18, "is no size: a number and a unit as in 5GB, 500MB or 2GiB");
  return int64_t(bytes);
}

void write_hf_folder(const Path& folder, const TensorSource& source,
                     const std::vector<std::string>& order, const Json& config,
                     const HfWriteOptions& options) {
  PHX_ASSERT(order.size() == source.tensors().size(), "the order names ", order.size(), " of ",
             source.tensors().size(), " tensors");
  recover_folder(folder, *options.disk);
  std::error_code code;
  PHX_CHECK(options.replace || !std::filesystem::exists(folder, code) ||
                std::filesystem::is_empty(folder, code),
            folder.string(),
            " is there already, and not empty\n  hint: give another name, or "
            "remove it");
  AtomicFolder made(folder, *options.disk);
  write_weights(made.temporary(), source, order, options);
  for (const Path& file : options.companions)
    write_file(made.temporary() / file.filename(), read_file(file), *options.disk);
  write_file(made.temporary() / "config.json", json_text(config, 2) + "\n", *options.disk);
  made.commit();
}

}  // namespace phx
