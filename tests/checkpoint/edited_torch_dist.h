// A copy of a torch_dist folder whose description a test changes.
#pragma once

#include <filesystem>

#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"
#include "phalanx/checkpoint/torch/torch_object.h"

namespace phx {

struct EditedTorchDist {
  EditedTorchDist(const Path& from, const Path& to) : path(to) {
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    metadata = TorchDistMetadata::read(path / ".metadata");
  }
  void save() const { write_file(path / ".metadata", pickled_metadata(metadata)); }

  nlohmann::json common() const { return parse_json(TorchDistCheckpoint(path).common_json()); }
  void set_common(nlohmann::json common) {
    common["args"] = nlohmann::json{{"$namespace", common["args"]}};
    const std::string bytes = saved_object(common);
    write_file(path / "__9_0.distcp", bytes);
    metadata.objects["common_state/shard_0_1"] = {"__9_0.distcp", 0, int64_t(bytes.size())};
  }
  // The numbers of one weight (of one chunk) become those of another.
  void replace(const std::string& key, const std::string& by) {
    metadata.tensors.at(key).chunks.at(0).place = metadata.tensors.at(by).chunks.at(0).place;
  }

  Path path;
  TorchDistMetadata metadata;
};

}  // namespace phx
