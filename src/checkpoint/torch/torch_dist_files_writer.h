// The __0_N.distcp files of a distributed checkpoint, written one after the other: torch.save files
// of one tensor each, and byte objects. The other side of torch_dist_files.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

namespace phx {

class TorchDistFilesWriter {
 public:
  // A new file begins when one has grown to `file_bytes`.
  TorchDistFilesWriter(const Path& folder, int64_t file_bytes)
      : folder_(folder), file_bytes_(file_bytes) {}

  // `box` of a tensor of the source, as `stored`, which has the same type and may have more rows:
  // zeros. Streamed: some tens of megabytes are in memory at a time.
  TorchDistPlace write(const TensorSource& source, const std::string& name, const Box& box,
                       const TensorInfo& stored);
  TorchDistPlace write(const std::string& object);
  void close();

 private:
  TorchDistPlace begin();

  Path folder_;
  int64_t file_bytes_;
  int count_ = 0;
  std::unique_ptr<AtomicFile> file_;
  std::vector<std::byte> buffer_;
};

}  // namespace phx
