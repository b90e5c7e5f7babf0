// The folders of tests/data/hf, which the transformers library wrote (scripts/make_hf_fixtures.py):
// their tensors, their configs, and changed copies of both.
#pragma once

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "convert/tensors_in_memory.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/convert/hf_config.h"
#include "phalanx/convert/hf_folder.h"
#include "phalanx/convert/hf_writer.h"
#include "support/temp_folder.h"

namespace phx {

template <class T>
std::vector<T> values(const SafetensorsFile::Tensor& tensor) {
  std::vector<T> result(tensor.bytes.size() / sizeof(T));
  std::memcpy(result.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

// All tensors of a folder, in memory.
inline TensorsInMemory tensors_of(const Path& folder) {
  return TensorsInMemory(*open_hf_tensors(folder));
}

inline void write_folder(const Path& folder, const TensorsInMemory& tensors,
                         const std::string& config_of) {
  write_hf_folder(folder, tensors, tensors.names(),
                  read_json_object(hf_fixture(config_of) / "config.json"), {});
}

inline nlohmann::json fixture_config(const std::string& name) {
  return read_json_object(hf_fixture(name) / "config.json");
}

inline TransformerConfig imported(const nlohmann::json& config) {
  return config_from_hf(config, "config.json").model;
}

inline std::string refusal(const nlohmann::json& config) {
  return error_of([&] { config_from_hf(config, "config.json"); });
}

}  // namespace phx
