#include "phalanx/comm/process_environment.h"

#include <cstdlib>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/comm/network.h"
#include "phalanx/core/runtime.h"

namespace phx {

namespace {

constexpr int kConnections = 32;  // the most that CUDA takes

class Maker {
 public:
  explicit Maker(const Variable& variable) : variable_(variable) {}

  std::optional<std::string> given(const char* name) const {
    const char* value = variable_ ? variable_(name) : std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  void set(const char* name, const std::string& value) {
    if (given(name) != value) made.variables[name] = value;
  }
  void set_if_unset(const char* name, const std::string& value) {
    if (!given(name)) made.variables[name] = value;
  }

  ProcessEnvironment made;

 private:
  const Variable& variable_;
};

// Each of a rank's streams needs a queue of its own on the GPU: in a shared one, a message that
// waits for its peer would hold up the very work that the peer waits for. (Scripts for Megatron
// often set this to 1.) A value that suffices is the user's to choose.
void give_streams_queues(Maker& to) {
  const char* name = "CUDA_DEVICE_MAX_CONNECTIONS";
  const std::optional<std::string> given = to.given(name);
  if (given && std::atoi(given->c_str()) >= kNumStreams) return;
  to.set(name, str_cat(kConnections));
  if (given)
    to.made.notes.push_back(str_cat(name, "=", *given, " was given, but this run sets it to ",
                                    kConnections, ": each of a rank's ", kNumStreams,
                                    " streams needs a queue of its own on the GPU"));
}

// NCCL refuses two ranks on one GPU of one machine.
void allow_shared_gpus(const LaunchEnvironment& launch, Maker& to) {
  if (to.given("PHX_SHARE_GPU") != "1") return;
  to.set("NCCL_HOSTID", str_cat("phalanx-rank-", launch.rank));
}

// NCCL chooses its sockets' interface itself unless it is told: one machine keeps to itself. It
// takes names of interfaces, not addresses, and reads a colon ("eth0:1") as the end of the name.
void keep_to_interface(const LaunchEnvironment& launch, Maker& to) {
  if (!launch.one_machine && launch.interface.empty()) return;
  std::string name = launch.one_machine ? "lo" : name_of_interface(launch.interface);
  name = name.substr(0, name.find(':'));
  to.set_if_unset("NCCL_SOCKET_IFNAME", str_cat("=", name));
}

}  // namespace

ProcessEnvironment process_environment(const std::optional<LaunchEnvironment>& launch,
                                       const Variable& variable) {
  Maker to(variable);
  give_streams_queues(to);
  // cuDNN's frontend asks a shared CUDA runtime for device properties, though ours is linked in.
  // By this name it finds the one that attention has opened before, wherever that lies.
  to.set_if_unset("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so.13");
  if (launch && launch->size > 1) {
    allow_shared_gpus(*launch, to);
    keep_to_interface(*launch, to);
  }
  return std::move(to.made);
}

std::vector<std::string> prepare_process(const std::optional<LaunchEnvironment>& launch) {
  ProcessEnvironment made = process_environment(launch);
  for (const auto& [name, value] : made.variables) ::setenv(name.c_str(), value.c_str(), 1);
  return std::move(made.notes);
}

}  // namespace phx
