// How much host memory a rank takes to load a checkpoint, beside the states that it loads, which go
// to their places in parts. Bounds, for plans; the tests compare them with what a process takes.
#pragma once

#include <cstdint>
#include <span>

#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/core/runtime.h"

namespace phx {

// What the manifest of a checkpoint lists.
struct ListedPieces {
  int64_t pieces = 0;
  int64_t blocks = 0;  // with a checksum each
};
// Of a rank that saves these boxes.
ListedPieces listed_pieces(std::span<const LocalBox> boxes);

// While a rank reads the manifest, which lists the pieces of all ranks. Every rank reads all of it:
// which pieces it needs depends on its layout alone.
int64_t most_manifest_memory(const ListedPieces& of_all_ranks);

// What tensors come through on their way to a device of that kind: of a native checkpoint, and of
// one that is imported (of Hugging Face, of Megatron), whose tensors may be rearranged and of other
// types. Files that are imported are mapped beside that; those pages are the system's to take.
enum class LoadFrom : uint8_t { native, import };
int64_t most_read_memory(DeviceKind device, LoadFrom from);

}  // namespace phx
