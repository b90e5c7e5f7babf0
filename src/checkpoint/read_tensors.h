// Reads checkpoints from your own program.
//
//   const auto checkpoint = open_checkpoint("out/run");
//   for (const auto& [name, info] : checkpoint->tensors())
//     use(name, info.shape, read_values(*checkpoint, name));
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/checkpoint/native_checkpoint.h"

namespace phx {

// Opens the checkpoint of an iteration, or the newest one, in the --save folder of a run. An error
// says what is missing.
std::shared_ptr<const NativeCheckpoint> open_checkpoint(
    const Path& folder, std::optional<int64_t> iteration = std::nullopt);

// The elements of a tensor, row-major, of any dtype; or those of a box of it.
std::vector<double> read_values(const TensorSource& source, const std::string& name);
std::vector<double> read_values(const TensorSource& source, const std::string& name,
                                const Box& box);

// The same for bytes in memory.
std::vector<double> values_of(DType dtype, std::span<const std::byte> bytes);

}  // namespace phx
