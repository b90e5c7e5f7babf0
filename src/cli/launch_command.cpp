#include "phalanx/cli/launch_command.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/pretrain_command.h"
#include "phalanx/cli/restart_policy.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/comm/job_key.h"
#include "phalanx/comm/local_ranks.h"
#include "phalanx/comm/machine_limits.h"
#include "phalanx/comm/network.h"

namespace phx {
namespace {

struct LaunchOptions {
  int64_t nproc = 0;
  int64_t nnodes = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int64_t> master_port;
  std::string interface;
  std::optional<int64_t> mesh_port;
  int64_t max_restarts = 0;

  template <class Field>
  void each(Field&& field) {
    field("nproc", nproc, "ranks to start on this machine", Required{}, Positive{},
          Alias{"nproc-per-node"});
    field("nnodes", nnodes, "machines; launch runs on each of them", InRange{1, 1000000});
    field("node-rank", node_rank, "which of the machines this is", NotNegative{});
    field("master-addr", master_addr, "the machine with node rank 0, as the others reach it");
    field("master-port", master_port, "a free port there, on which the ranks meet",
          InRange{1, 65535}, DefaultIs{"any that is free; needed with --nnodes above 1"});
    field("interface", interface,
          "network interface (or address) of this machine on which ranks listen for other machines",
          DefaultIs{"all of them; on one machine always loopback only"});
    field("mesh-port", mesh_port,
          "port on which local rank 0 listens for other ranks; local rank r takes this one + r",
          InRange{1, 65535}, DefaultIs{"any that is free"});
    field("max-restarts", max_restarts,
          "start the ranks again when they fail, and go on from the newest checkpoint in --save; "
          "give up after so many restarts without a new checkpoint",
          InRange{0, 1000000});
  }
};

void check_machines(const OptionSet& options, Problems& problems) {
  const auto nodes = options.number("nnodes"), node = options.number("node-rank");
  if (nodes && node && *node >= *nodes)
    problems.push_back({ProblemKind::rule, "--node-rank",
                        str_cat("--node-rank ", *node, " is not below --nnodes ", *nodes),
                        "the machines are numbered from 0"});
  if (nodes && *nodes > 1)
    for (const char* name : {"master-addr", "master-port"})
      if (!options.at(name).given)
        problems.push_back({ProblemKind::rule, str_cat("--", name),
                            str_cat("--nnodes ", *nodes, " needs --", name),
                            "the same on every machine"});
  const auto ranks = options.number("nproc"), port = options.number("mesh-port");
  if (ranks && port && *port + *ranks - 1 > 65535)
    problems.push_back({ProblemKind::rule, "--mesh-port",
                        str_cat("--mesh-port ", *port, " leaves no ports for --nproc ", *ranks),
                        "the last port is 65535"});
}

// Ranks on other machines can only be trusted if they know a secret. It comes by the environment:
// everybody on a machine can read the flags of a process.
void check_key(const OptionSet& options, Problems& problems) {
  const auto nodes = options.number("nnodes");
  if (!nodes || *nodes < 2) return;
  const char* key = std::getenv("PHX_JOB_KEY");
  const std::string problem =
      key == nullptr
          ? str_cat("--nnodes ", *nodes,
                    " needs PHX_JOB_KEY in the environment: a secret that is the same on "
                    "every machine")
          : job_key_problem(key);
  if (!problem.empty())
    problems.push_back({ProblemKind::rule, "PHX_JOB_KEY", problem,
                        str_cat("this one was made just now; on every machine: export PHX_JOB_KEY=",
                                make_job_key())});
}

// Processes need memory, descriptors and numbers, of which a machine has only so many.
void check_room(const OptionSet& options, Problems& problems) {
  const auto given = options.number("nproc"), machines = options.number("nnodes");
  if (!given || !machines || *given < 1 || *machines < 1) return;
  const auto ranks = int64_t(std::min(*given, 1e12)),
             world = ranks * int64_t(std::min(*machines, 1e6));
  if (const auto short_of = lacks_room_for_processes(ranks, world, machine_limits()))
    problems.push_back({ProblemKind::rule, "--nproc",
                        str_cat("--nproc ", ranks, ": ", short_of->what), short_of->way_out});
}

// What the command has to say before it runs is said once, not by every rank.
std::optional<int> answer_once(std::span<const std::string> command, int64_t world,
                               const Catalogue& catalogue) {
  if (command[0] == "pretrain") return answer_pretrain(command.subspan(1), world, catalogue);
  const bool known = std::any_of(commands().begin(), commands().end(),
                                 [&](const Command& c) { return command[0] == c.name; });
  if (!known && !command[0].starts_with("-"))
    return run_phalanx(command, catalogue);  // names the nearest
  return std::nullopt;
}

// A run that is started again goes on with what it saved.
void check_restarts(std::span<const std::string> command, const std::string& save) {
  if (command[0] != "pretrain")
    throw UsageError(str_cat("--max-restarts: a restarted run goes on from its checkpoints, which ",
                             command[0], " does not save\n  hint: leave it out"));
  if (save.empty())
    throw UsageError(
        "--max-restarts needs --save, and no --skip-train: a restarted run goes on from its "
        "checkpoints\n  hint: --save DIR --save-interval N");
}

// The newest; `before` if the folder cannot be looked into now.
std::optional<int64_t> newest_checkpoint(const std::string& save, std::optional<int64_t> before) {
  if (save.empty()) return std::nullopt;
  try {
    const std::vector<int64_t> there = checkpoints_in(save);
    return there.empty() ? std::nullopt : std::optional(there.front());
  } catch (const std::exception&) {
    return before;
  }
}

// How the ranks are started again: what a damaged checkpoint does to them, it does at once, so that
// the second time in a row each is read and checked.
std::vector<std::string> restarted(std::vector<std::string> command, int64_t in_a_row) {
  command.emplace_back("--auto-resume");
  if (in_a_row > 1) command.emplace_back("--load-newest-valid");
  return command;
}

std::string failure_text(const RankEnd& end, int64_t machines) {
  return str_cat(describe(end), ", first of all", machines > 1 ? " on this machine" : "");
}

// Every flag of launch takes a value, so its own end where the first word without dashes stands.
size_t own_flags(std::span<const std::string> args) {
  size_t at = 0;
  while (at < args.size() && args[at].starts_with("-") && args[at] != "--") {
    const bool whole =
        args[at].find('=') != std::string::npos || args[at] == "--help" || args[at] == "-h";
    at += whole ? 1 : 2;
  }
  return std::min(at, args.size());
}

// Standard output of rank 0 stays as it is: it is the output of the run. The rest is marked. What
// nobody can be told any more (a closed pipe, a full disk) is left out, and the ranks go on.
void print_line(int rank, OutputKind kind, std::string_view line) {
  FILE* to = kind == OutputKind::out ? stdout : stderr;
  std::string text = rank != 0 || kind == OutputKind::error ? str_cat("[", rank, "] ") : "";
  text.append(line).push_back('\n');
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

// Runs them until they end in order, or RestartPolicy gives up. The exit code.
int run_with_restarts(LocalRanks ranks, const std::string& save, const LaunchOptions& options) {
  const std::vector<std::string> first = ranks.command;
  std::optional<int64_t> checkpoint = newest_checkpoint(save, std::nullopt);
  RestartPolicy policy(options.max_restarts, checkpoint);
  for (;;) {
    const LocalRanksResult result = run_local_ranks(ranks, kExitSignal, print_line);
    if (!result.first_failure) return result.stopped ? kExitSignal : kExitDone;
    const RankEnd& end = *result.first_failure;
    const std::string failure = failure_text(end, options.nnodes);
    const int exit_code = end.signal != 0 ? 128 + end.signal : end.exit_code;
    const std::optional<int64_t> before = checkpoint;
    checkpoint = newest_checkpoint(save, before);
    if (options.max_restarts > 0 && before && !checkpoint) {
      std::cerr << "error: " << failure << ", and " << save
                << " has lost its checkpoints, of which " << *before
                << " was the newest: the run is not started again from the beginning\n"
                << "  hint: is its file system there?\n";
      return exit_code;
    }
    const auto wait = policy.next(result, checkpoint);
    if (!wait) {
      std::cerr << "error: " << failure << "\n";
      const bool gave_up =
          options.max_restarts > 0 && !result.told_to_stop && end.exit_code != kExitUsage;
      if (gave_up)
        std::cerr
            << "  hint: --max-restarts " << options.max_restarts
            << " gives up: that many restarts in a row brought no new checkpoint; the messages "
               "above say why ranks fail\n";
      return exit_code;
    }
    std::cerr << "warning: " << failure << "; restart " << policy.in_a_row() << " of "
              << options.max_restarts << " in " << wait->count() / 1000 << " s, "
              << (checkpoint ? str_cat("newest checkpoint: ", *checkpoint)
                             : str_cat("from the beginning: ", save, " holds no checkpoint"))
              << "\n";
    if (!wait_without_ranks(*wait)) return kExitSignal;
    ranks.command = restarted(first, policy.in_a_row());
  }
}

}  // namespace

int run_launch(std::span<const std::string> args, const Catalogue& catalogue) {
  LaunchOptions options;
  OptionSet set;
  set.add("Launch", options);
  const Rule rules[] = {{"machines are numbered, and meet somewhere", check_machines},
                        {"several machines share a secret", check_key},
                        {"the machine has room for the ranks", check_room}};
  const CommandHelp help = {
      "phalanx launch --nproc N [flags] [--] COMMAND [flags of the command]",
      "Starts N processes of `phalanx COMMAND` as the ranks of one run. Prints the output of rank "
      "0 as it is;\nputs \"[rank] \" before the output of the other ranks and before all errors. "
      "When one rank fails, all ranks\nend, and the message names the first one that failed; with "
      "--max-restarts they start again. "
      "SIGTERM, SIGINT, SIGUSR1 and SIGHUP are passed\non to every rank.\n\n"
      "On several machines, run it on each with the same flags except --node-rank, and with the "
      "same secret in\nPHX_JOB_KEY (docs/machines.md).",
      "phalanx launch --nproc 4 pretrain --config recipe.yaml --tensor-model-parallel-size 4\n"
      "  PHX_JOB_KEY=... phalanx launch --nproc 4 --nnodes 2 --node-rank 0 --master-addr node0 "
      "--master-port 29500 pretrain --config recipe.yaml"};
  const size_t own = own_flags(args);
  std::span<const std::string> command = args.subspan(own);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  if (const auto exit_code = parse_args(set, rules, help, args.first(own))) {
    // Both are told at once: what is wrong here, and with the command.
    if (*exit_code == kExitUsage && !command.empty() && command[0] == "pretrain")
      std::cerr << format_problems(pretrain_problems(command.subspan(1), catalogue));
    return *exit_code;
  }
  if (command.empty())
    throw UsageError(
        "launch: no command to start\n  hint: phalanx launch --nproc 4 pretrain --config "
        "recipe.yaml");
  const int64_t world = options.nnodes * options.nproc;
  if (const auto exit_code = answer_once(command, world, catalogue)) return *exit_code;
  const std::string save =
      command[0] == "pretrain" ? save_folder_of(command.subspan(1), world, catalogue) : "";
  if (options.max_restarts > 0) {
    check_restarts(command, save);
    const std::vector<std::string> later = restarted({command.begin(), command.end()}, 1);
    if (const auto exit_code = answer_once(later, world, catalogue)) return *exit_code;
  }
  make_room_for_files(world);

  LocalRanks ranks{.command = {std::filesystem::read_symlink("/proc/self/exe").string()},
                   .count = int(options.nproc),
                   .first_rank = int(options.node_rank * options.nproc),
                   .world_size = int(world),
                   .master_host = options.master_addr,
                   .port = int(options.master_port.value_or(0))};
  ranks.command.insert(ranks.command.end(), command.begin(), command.end());
  if (!options.interface.empty()) {
    if (options.nnodes > 1) addresses_of_interface(options.interface);  // is there, or says so here
    ranks.variables.push_back("PHX_INTERFACE=" + options.interface);
  }
  if (options.mesh_port) ranks.variables.push_back(str_cat("PHX_MESH_PORT=", *options.mesh_port));
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe behind the log must not end the ranks
  return run_with_restarts(ranks, save, options);
}

}  // namespace phx
