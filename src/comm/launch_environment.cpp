#include "phalanx/comm/launch_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/comm/socket.h"

namespace phx {

namespace {

class Reader {
 public:
  explicit Reader(const Variable& variable) : variable_(variable) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = variable_ ? variable_(name) : std::getenv(name);
    return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
  }
  std::optional<int> number(const char* name) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    int result = 0;
    const char* end = value->data() + value->size();
    const auto [at, error] = std::from_chars(value->data(), end, result);
    PHX_CHECK(error == std::errc() && at == end && result >= 0, name, "=", *value,
              " in the environment is not a whole number");
    return result;
  }
  int needed(const char* name, const char* beside) const {
    const auto value = number(name);
    PHX_CHECK(value.has_value(), beside, " is in the environment, but ", name,
              " is not\n  hint: start ranks with phalanx launch, torchrun --no-python, mpirun or "
              "srun, which set both; or unset ",
              beside);
    return *value;
  }

 private:
  const Variable& variable_;
};

// A port that all processes of a job derive alike.
int port_of_job(const std::string& job) {
  uint32_t hash = 2166136261u;
  for (unsigned char c : job) hash = (hash ^ c) * 16777619u;
  return 20000 + int(hash % 12000);  // below the range from which Linux gives out ports
}

// "[fd00::1]" -> "fd00::1"
std::string without_brackets(const std::string& host) {
  const bool has = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return has ? host.substr(1, host.size() - 2) : host;
}

void find_store(const Reader& read, LaunchEnvironment& found, const std::string& job,
                const std::string& host) {
  found.store_host = without_brackets(read.text("MASTER_ADDR").value_or(host));
  if (const auto port = read.number("PHX_STORE_PORT"))
    found.store_port = *port;
  else if (const auto master = read.number("MASTER_PORT"))
    found.store_port = *master + 1;
  else
    found.store_port = port_of_job(job);
  PHX_CHECK(found.store_port > 0 && found.store_port < 65536, "port ", found.store_port,
            " for the TCP store is outside of 1 .. 65535: set PHX_STORE_PORT or MASTER_PORT");
}

LaunchEnvironment from_torchrun(const Reader& read) {
  LaunchEnvironment found;
  found.launcher = read.text("PHX_LAUNCHER").value_or("torchrun");
  found.rank = read.needed("RANK", "WORLD_SIZE");
  found.size = read.needed("WORLD_SIZE", "RANK");
  const auto local_rank = read.number("LOCAL_RANK"), local_size = read.number("LOCAL_WORLD_SIZE");
  found.local_rank = local_rank.value_or(found.rank);
  found.local_size = local_size.value_or(found.size);
  // Variables that were set by hand may say less: then only an address that no other machine can
  // reach says that all ranks are here.
  found.one_machine =
      local_size ? *local_size == found.size : is_loopback(read.text("MASTER_ADDR").value_or(""));
  found.with_rank_zero = found.rank == 0 || (local_rank && *local_rank == found.rank);
  found.numbered_in_turn = local_size.has_value();
  found.job = read.text("TORCHELASTIC_RUN_ID").value_or("");
  PHX_CHECK(found.size <= 1 || read.text("MASTER_ADDR"), "WORLD_SIZE=", found.size,
            " is in the environment, but MASTER_ADDR is not: it names the machine of rank 0");
  find_store(read, found, "phalanx", "127.0.0.1");
  return found;
}

LaunchEnvironment from_mpirun(const Reader& read) {
  LaunchEnvironment found;
  found.launcher = "mpirun";
  found.rank = read.needed("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  found.size = read.needed("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK");
  found.local_rank = read.number("OMPI_COMM_WORLD_LOCAL_RANK").value_or(found.rank);
  found.local_size = read.number("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(found.size);
  // Only NCCL asks for the store here; on one machine it needs no address.
  const auto job = read.text("PMIX_NAMESPACE");
  find_store(read, found, job.value_or("mpirun"),
             found.local_size == found.size ? "127.0.0.1" : "");
  found.one_machine = found.local_size == found.size;
  found.with_rank_zero = found.local_rank == found.rank;
  found.numbered_in_turn = false;  // --map-by may say otherwise
  found.job = job.value_or("");
  return found;
}

LaunchEnvironment from_srun(const Reader& read) {
  LaunchEnvironment found;
  found.launcher = "srun";
  found.rank = read.needed("SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  found.size = read.needed("SLURM_STEP_NUM_TASKS", "SLURM_PROCID");
  found.local_rank = read.number("SLURM_LOCALID").value_or(found.rank);
  found.local_size = found.size / std::max(read.number("SLURM_STEP_NUM_NODES").value_or(1), 1);
  const auto hosts = read.text("SLURM_STEP_NODELIST");
  found.job =
      read.text("SLURM_JOB_ID").value_or("") + "." + read.text("SLURM_STEP_ID").value_or("");
  find_store(read, found, found.job, hosts ? first_host(*hosts) : "127.0.0.1");
  found.one_machine = found.local_size == found.size;
  // Of the ranks on a machine the lowest is local rank 0: only beside rank 0 are the two the same.
  found.with_rank_zero = found.rank == 0 || (found.local_rank == found.rank &&
                                             read.number("SLURM_LOCALID").has_value());
  found.numbered_in_turn = false;  // --distribution may say otherwise
  return found;
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t end = list.find_first_of(",[");
  if (end == std::string::npos || list[end] == ',') return list.substr(0, end);
  const size_t number_end = list.find_first_of(",-]", end);
  const size_t close = list.find(']', end);
  PHX_CHECK(number_end != std::string::npos && close != std::string::npos, "the list of machines '",
            list, "' cannot be read");
  const size_t next = list.find(',', close);
  return list.substr(0, end) + list.substr(end + 1, number_end - end - 1) +
         list.substr(close + 1, next == std::string::npos ? next : next - close - 1);
}

std::optional<LaunchEnvironment> launch_environment(const Variable& variable) {
  const Reader read(variable);
  LaunchEnvironment found;
  if (read.text("RANK") || read.text("WORLD_SIZE"))
    found = from_torchrun(read);
  else if (read.text("OMPI_COMM_WORLD_RANK"))
    found = from_mpirun(read);
  // A batch script has SLURM_PROCID too, but is no step: there, nobody else would come.
  else if (read.text("SLURM_STEP_ID") && read.text("SLURM_STEP_NUM_TASKS"))
    found = from_srun(read);
  else
    return std::nullopt;
  found.interface = read.text("PHX_INTERFACE").value_or("");
  found.mesh_port = read.number("PHX_MESH_PORT").value_or(0);
  found.job_key = read.text("PHX_JOB_KEY").value_or("");
  PHX_CHECK(found.size > 0 && found.rank < found.size, found.launcher, " says that this is rank ",
            found.rank, " of ", found.size);
  return found;
}

}  // namespace phx
