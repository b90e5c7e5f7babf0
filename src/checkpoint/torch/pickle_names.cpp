#include "phalanx/checkpoint/torch/pickle_names.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace phx {
namespace {

using Entry = std::pair<std::string_view, PickleName>;

constexpr auto kValue = PickleName::value;
constexpr auto kCall = PickleName::callable;
constexpr auto kDict = PickleName::dictionary;
constexpr auto kEnum = PickleName::enumeration;

// In alphabetical order, for the binary search.
constexpr auto kNames = std::to_array<Entry>({
    {"__builtin__.bool", kCall},
    {"__builtin__.bytearray", kCall},
    {"__builtin__.bytes", kCall},
    {"__builtin__.complex", kCall},
    {"__builtin__.dict", kDict},
    {"__builtin__.float", kCall},
    {"__builtin__.frozenset", kCall},
    {"__builtin__.getattr", PickleName::member_of},
    {"__builtin__.int", kCall},
    {"__builtin__.list", kCall},
    {"__builtin__.long", kCall},
    {"__builtin__.object", kCall},
    {"__builtin__.set", kCall},
    {"__builtin__.slice", kCall},
    {"__builtin__.str", kCall},
    {"__builtin__.tuple", kCall},
    {"__builtin__.unicode", kCall},
    {"_codecs.encode", kCall},
    {"argparse.Namespace", kCall},
    {"builtins.bool", kCall},
    {"builtins.bytearray", kCall},
    {"builtins.bytes", kCall},
    {"builtins.complex", kCall},
    {"builtins.dict", kDict},
    {"builtins.float", kCall},
    {"builtins.frozenset", kCall},
    {"builtins.getattr", PickleName::member_of},
    {"builtins.int", kCall},
    {"builtins.list", kCall},
    {"builtins.object", kCall},
    {"builtins.set", kCall},
    {"builtins.slice", kCall},
    {"builtins.str", kCall},
    {"builtins.tuple", kCall},
    {"collections.Counter", kDict},
    {"collections.OrderedDict", kDict},
    {"collections.defaultdict", kDict},
    {"collections.deque", kCall},
    {"copy_reg._reconstructor", kCall},
    {"copyreg._reconstructor", kCall},
    {"datetime.date", kCall},
    {"datetime.datetime", kCall},
    {"datetime.timedelta", kCall},
    {"io.BytesIO", kCall},
    {"numpy._core.multiarray._reconstruct", kCall},
    {"numpy._core.multiarray.scalar", kCall},
    {"numpy.core.multiarray._reconstruct", kCall},
    {"numpy.core.multiarray.scalar", kCall},
    {"numpy.dtype", kCall},
    {"numpy.ndarray", kCall},
    {"pathlib.PosixPath", kCall},
    {"pathlib.PurePosixPath", kCall},
    {"pathlib._local.PosixPath", kCall},
    {"pathlib._local.PurePosixPath", kCall},
    {"signal.Signals", kEnum},  // Megatron's arguments name the signal that ends a run
    {"torch.BFloat16Storage", kCall},
    {"torch.BoolStorage", kCall},
    {"torch.ByteStorage", kCall},
    {"torch.CharStorage", kCall},
    {"torch.ComplexDoubleStorage", kCall},
    {"torch.ComplexFloatStorage", kCall},
    {"torch.DoubleStorage", kCall},
    {"torch.FloatStorage", kCall},
    {"torch.HalfStorage", kCall},
    {"torch.IntStorage", kCall},
    {"torch.LongStorage", kCall},
    {"torch.ShortStorage", kCall},
    {"torch.Size", kCall},
    {"torch.Tensor", kCall},
    {"torch.UntypedStorage", kCall},
    {"torch._tensor._rebuild_from_type_v2", kCall},  // of a tensor that was given attributes
    {"torch._utils._rebuild_parameter", kCall},
    {"torch._utils._rebuild_parameter_with_state", kCall},
    {"torch._utils._rebuild_tensor", kCall},
    {"torch._utils._rebuild_tensor_v2", kCall},
    {"torch._utils._rebuild_tensor_v3", kCall},
    {"torch.bfloat16", kValue},
    {"torch.bool", kValue},
    {"torch.channels_last", kValue},
    {"torch.complex128", kValue},
    {"torch.complex64", kValue},
    {"torch.contiguous_format", kValue},
    {"torch.device", kCall},
    {"torch.distributed._shard.metadata.ShardMetadata", kCall},
    {"torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING", kEnum},
    {"torch.distributed._shard.sharded_tensor.metadata.TensorProperties", kCall},
    {"torch.distributed.checkpoint.filesystem._StorageInfo", kCall},
    {"torch.distributed.checkpoint.filesystem._StoragePrefix", kCall},
    {"torch.distributed.checkpoint.metadata.BytesStorageMetadata", kCall},
    {"torch.distributed.checkpoint.metadata.ChunkStorageMetadata", kCall},
    {"torch.distributed.checkpoint.metadata.Metadata", kCall},
    {"torch.distributed.checkpoint.metadata.MetadataIndex", kCall},
    {"torch.distributed.checkpoint.metadata.StorageMeta", kCall},
    {"torch.distributed.checkpoint.metadata.TensorProperties", kCall},
    {"torch.distributed.checkpoint.metadata.TensorStorageMetadata", kCall},
    {"torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING", kEnum},
    {"torch.distributed.checkpoint.planner.BytesIOWriteData", kCall},
    {"torch.distributed.checkpoint.planner.SavePlan", kCall},  // Megatron keeps its ranks' plans
    {"torch.distributed.checkpoint.planner.TensorWriteData", kCall},
    {"torch.distributed.checkpoint.planner.WriteItem", kCall},
    {"torch.distributed.checkpoint.planner.WriteItemType", kEnum},
    {"torch.float16", kValue},
    {"torch.float32", kValue},
    {"torch.float64", kValue},
    {"torch.float8_e4m3fn", kValue},
    {"torch.float8_e5m2", kValue},
    {"torch.int16", kValue},
    {"torch.int32", kValue},
    {"torch.int64", kValue},
    {"torch.int8", kValue},
    {"torch.nn.parameter.Parameter", kCall},
    {"torch.preserve_format", kValue},
    {"torch.serialization._get_layout", kCall},
    {"torch.storage.TypedStorage", kCall},
    {"torch.storage.UntypedStorage", kCall},
    {"torch.storage._TypedStorage", kCall},
    {"torch.storage._UntypedStorage", kCall},
    {"torch.strided", kValue},
    {"torch.uint16", kValue},
    {"torch.uint8", kValue},
    {"types.SimpleNamespace", kCall},
});
static_assert(std::ranges::is_sorted(kNames, {}, &Entry::first));

bool is_class_name(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return !last.empty() && last[0] >= 'A' && last[0] <= 'Z';
}

}  // namespace

PickleName pickle_name(std::string_view module, std::string_view name) {
  const std::string full = std::string(module) + "." + std::string(name);
  const auto found = std::lower_bound(
      kNames.begin(), kNames.end(), full,
      [](const Entry& entry, const std::string& wanted) { return entry.first < wanted; });
  if (found != kNames.end() && found->first == full) return found->second;
  // Megatron's own classes (its settings and enumerations stand in a run's arguments) are objects
  // with a name and nothing more. Its functions are not data.
  const bool megatron =
      module.starts_with("megatron.") || module.starts_with("transformer_engine.");
  if (megatron && is_class_name(name) && name.find('.') == name.npos)
    return PickleName::enumeration;
  return PickleName::refused;
}

}  // namespace phx
