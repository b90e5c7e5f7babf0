#include "phalanx/comm/rendezvous.h"

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/comm/job_key.h"
#include "phalanx/comm/machine_key.h"
#include "phalanx/comm/network.h"

namespace phx {

namespace {

constexpr auto kReportEvery = std::chrono::seconds(5);

// Ranks of one user on one machine need none: rank 0 makes one, and leaves it in a file.
bool makes_key(const LaunchEnvironment& environment) {
  return environment.one_machine && environment.job_key.empty();
}

JobKey key_of(const LaunchEnvironment& environment) {
  if (makes_key(environment)) return environment.rank == 0 ? JobKey(make_job_key()) : JobKey();
  PHX_CHECK(!environment.job_key.empty(), "rank ", environment.rank, " of ", environment.size,
            ": ranks on several machines need PHX_JOB_KEY, a secret that all of them know, and it "
            "is not set",
            job_key_hint(),
            environment.launcher == "torchrun"
                ? "\n  hint: if all ranks are on this machine, set LOCAL_WORLD_SIZE to their number"
                : "");
  const std::string problem = job_key_problem(environment.job_key);
  PHX_CHECK(problem.empty(), problem, job_key_hint());
  return JobKey(environment.job_key).with(str_cat("job ", environment.job));
}

// Beside rank 0 nothing depends on what MASTER_ADDR means here: a machine's own name is often a
// loopback address to itself.
Hosts hosts_of_rank_zero(const LaunchEnvironment& environment) {
  if (environment.one_machine) return {kLoopback};
  if (!environment.with_rank_zero) return {environment.store_host};
  return environment.interface.empty() ? Hosts{kLoopback}
                                       : addresses_of_interface(environment.interface);
}

// The others would wait for a rank 0 that is elsewhere: two machines with --node-rank 0, say.
void warn_of_another_master(const LaunchEnvironment& environment) {
  if (environment.rank != 0 || environment.one_machine) return;
  if (is_this_machine(environment.store_host).value_or(true)) return;
  log_warning(str_cat("rank 0 runs on ", host_name(), ", but the master's address ",
                      environment.store_host,
                      " is not one of this machine's: the others will not find it here, unless the "
                      "network forwards the address (is --node-rank right, and MASTER_ADDR?)"));
}

}  // namespace

std::string job_key_hint() {
  return str_cat(
      "\n  hint: on every machine, with this or another value that nobody can guess:"
      "\n    export PHX_JOB_KEY=",
      make_job_key());
}

Hosts addresses_to_listen_on(const LaunchEnvironment& environment) {
  if (environment.one_machine) return {kLoopback};
  return environment.interface.empty() ? Hosts{} : addresses_of_interface(environment.interface);
}

TcpStoreOptions store_options(const LaunchEnvironment& environment,
                              std::chrono::milliseconds timeout) {
  warn_of_another_master(environment);
  // One rank of each machine says whom it waits for.
  const bool speaks = environment.local_rank == 0 || environment.rank == 0;
  return {.hosts = hosts_of_rank_zero(environment),
          .port = environment.store_port,
          .rank = environment.rank,
          .size = environment.size,
          .timeout = timeout,
          .key = key_of(environment),
          .key_file = makes_key(environment) ? machine_key_file(environment.store_port) : Path(),
          .listen_on = environment.rank == 0 ? addresses_to_listen_on(environment) : Hosts{},
          .one_machine = environment.one_machine,
          .ranks_a_machine = environment.numbered_in_turn ? environment.local_size : 0,
          .report_every = speaks ? kReportEvery : std::chrono::seconds(0)};
}

}  // namespace phx
