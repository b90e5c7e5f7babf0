// Whether all ranks load the same checkpoint. Machines with disks of their own may hold other files
// under the same path, and ranks would train on as parts of two models.
#pragma once

#include <cstdint>

#include "phalanx/base/file.h"
#include "phalanx/train/session.h"

namespace phx {

// A number that follows from what a rank finds at `path`: 0 if that is missing or cannot be read.
// Of a native checkpoint its manifest, which has the checksums of the shards.
uint64_t native_checksum(const Path& checkpoint);
// Of a Hugging Face folder or one of Megatron's: config.json or .metadata, and the names and sizes
// of all files with weights or descriptions.
uint64_t folder_checksum(const Path& folder);

// Collective: an error on every rank that says which ranks have which number.
void check_same_checkpoint(const Session& session, const Path& path, uint64_t checksum);

}  // namespace phx
