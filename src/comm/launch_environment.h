// Which rank this process is, from the variables of whoever started it: torchrun (also with
// --no-python) and `phalanx launch` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), Open
// MPI's mpirun (OMPI_COMM_WORLD_*), or Slurm's srun (SLURM_*); the first that is there wins.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace phx {

struct LaunchEnvironment {
  std::string launcher;  // "torchrun", for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  // Where rank 0 keeps the TCP store. The port is PHX_STORE_PORT, or else MASTER_PORT + 1 (torchrun
  // itself sits on MASTER_PORT), or else one that follows from the job's number.
  std::string store_host = "127.0.0.1";
  int store_port = 0;

  bool one_machine = true;       // all ranks are here: nothing listens to other machines
  bool with_rank_zero = true;    // this rank is known to be on rank 0's machine
  bool numbered_in_turn = true;  // ranks 0 .. local_size - 1 on the first machine, and so on
  std::string interface;         // PHX_INTERFACE: on which to talk to other machines; empty: any
  int mesh_port = 0;             // PHX_MESH_PORT of local rank 0, and up from there; 0: any
  std::string job_key;           // PHX_JOB_KEY: the secret of this job; may be empty on one machine
  std::string job;               // its name for the launcher; tells apart jobs with the same key

  bool under_mpirun() const { return launcher == "mpirun"; }
};

// None without a launcher. Throws when variables are missing or contradict each other. `variable`
// is getenv unless a test says otherwise.
using Variable = std::function<const char*(const char* name)>;
std::optional<LaunchEnvironment> launch_environment(const Variable& variable = {});

// "node[007-009,012],login" -> "node007": the first of Slurm's list of machines.
std::string first_host(const std::string& list);

}  // namespace phx
