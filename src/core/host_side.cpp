#include "phalanx/core/host_side.h"

#include <cstring>

namespace phx {

namespace {

RuntimeOptions host_options(Runtime& device, bool pinned) {
  if (device.kind() == DeviceKind::meta)
    return {.kind = DeviceKind::meta, .target = DeviceKind::cpu};
  return {.kind = DeviceKind::cpu,
          .threads = pinned ? device.options().threads : 1,
          .pinned_for = pinned ? &device.backend() : nullptr};
}

}  // namespace

HostSide::HostSide(Runtime& device)
    : device_(device), plain_(host_options(device, false)), pinned_(host_options(device, true)) {}

void HostSide::to_host(const Tensor& from, const Tensor& to, StreamName on) {
  PHX_ASSERT(from.bytes() == to.bytes(), "a copy of ", from.bytes(), " bytes into ", to.bytes());
  bytes_copied_ += from.bytes();
  if (device_.kind() == DeviceKind::meta) return;
  device_.backend().copy_to_host(to.raw(), from.raw(), from.bytes(), on);
}

void HostSide::to_device(const Tensor& from, const Tensor& to, StreamName on) {
  PHX_ASSERT(from.bytes() == to.bytes(), "a copy of ", from.bytes(), " bytes into ", to.bytes());
  bytes_copied_ += from.bytes();
  if (device_.kind() == DeviceKind::meta) return;
  device_.backend().copy_to_device(to.raw(), from.raw(), from.bytes(), on);
}

HostMemory host_memory(Runtime& device) {
  HostSide* host = device.made_extension<HostSide>();
  return host == nullptr ? HostMemory{} : host->memory();
}

void HostSide::set_zero(const Tensor& x) {
  if (device_.kind() == DeviceKind::meta) return;
  char* data = static_cast<char*>(x.raw());
  pinned_.threads().parallel_for(x.bytes(), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
    std::memset(data + begin, 0, size_t(end - begin));
  });
}

}  // namespace phx
