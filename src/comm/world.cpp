#include "phalanx/comm/world.h"

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/mpi_world.h"
#include "phalanx/comm/socket_world.h"
#include "phalanx/comm/transport_communicator.h"
#ifdef PHX_HAVE_CUDA
#include "phalanx/comm/cuda/nccl_world.h"
#endif

namespace phx {

namespace {

class SoloWorld : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "one rank"; }

 protected:
  std::unique_ptr<Communicator> make_group(GroupInfo info) override {
    return std::make_unique<TransportCommunicator>(std::move(info), nullptr);
  }
};

}  // namespace

std::unique_ptr<World> make_solo_world() { return std::make_unique<SoloWorld>(); }

std::unique_ptr<World> make_world(DeviceKind device, const WorldOptions& options) {
  const auto environment = launch_environment();
  if (!environment || environment->size == 1) return make_solo_world();
  if (device == DeviceKind::cuda) {
#ifdef PHX_HAVE_CUDA
    return make_nccl_world(*environment, options);
#else
    throw_error(
        "this phalanx was built without CUDA; build the 'cuda' preset, or use --device cpu");
#endif
  }
  PHX_CHECK(device == DeviceKind::cpu, "ranks on ", name(device), " are not processes");
  if (environment->under_mpirun() && has_mpi()) return make_mpi_world(*environment, options);
  return make_socket_world(*environment, options);
}

}  // namespace phx
