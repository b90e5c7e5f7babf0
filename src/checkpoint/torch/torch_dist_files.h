// The __R_N.distcp files of a distributed checkpoint. A chunk in them is a small torch.save file,
// which is opened when it is first read. Any number of threads may read at once.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

namespace phx {

class TorchDistFiles {
 public:
  explicit TorchDistFiles(const Path& folder) : folder_(folder) {}

  // Maps the file of a place, if it is not mapped yet. An error if the file is shorter. `name`: of
  // what is there, for errors.
  void open(const std::string& name, const TorchDistPlace& place);

  // What torch.save wrote at an opened place.
  TorchArchive archive_at(const std::string& name, const TorchDistPlace& place) const;
  const TorchTensor& chunk(const std::string& name, const TorchDistTensor& tensor,
                           const TorchDistChunk& chunk) const;
  // The elements of `box`, dense, from the tensor's chunks. All of them must be opened.
  void copy(const std::string& name, const TorchDistTensor& tensor, const Box& box,
            std::span<std::byte> out) const;

 private:
  std::span<const std::byte> bytes_at(const TorchDistPlace& place) const;

  Path folder_;
  std::map<std::string, MappedFile> files_;
  mutable std::mutex mutex_;
  mutable std::map<const TorchDistChunk*, TorchTensor> chunks_;
};

}  // namespace phx
