#include "cli/launch_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "cli/exit_codes.h"
#include "cli/parse_args.h"
#include "cli/usage_error.h"
#include "comm/local_ranks.h"

namespace phx {
namespace {

struct LaunchOptions {
  int64_t nproc = 0;
  int64_t nnodes = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  std::optional<int64_t> master_port;

  template <class Field>
  void each(Field&& field) {
    field("nproc", nproc, "ranks to start on this machine", Required{}, Positive{},
          Alias{"nproc-per-node"});
    field("nnodes", nnodes, "machines; launch runs on each of them", Positive{});
    field("node-rank", node_rank, "which of the machines this is", NotNegative{});
    field("master-addr", master_addr, "the machine with node rank 0, as the others reach it");
    field("master-port", master_port, "a free port there, on which the ranks meet",
          InRange{1, 65535}, DefaultIs{"any that is free; needed with --nnodes above 1"});
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

// Standard output of rank 0 stays as it is: it is the output of the run. The rest is marked.
void print_line(int rank, OutputKind kind, std::string_view line) {
  FILE* to = kind == OutputKind::out ? stdout : stderr;
  if (rank != 0 || kind == OutputKind::error) fmt::print(to, "[{}] ", rank);
  fmt::print(to, "{}\n", line);
  std::fflush(to);
}

}  // namespace

int run_launch(std::span<const std::string> args) {
  LaunchOptions options;
  OptionSet set;
  set.add("Launch", options);
  const Rule rules[] = {{"machines are numbered, and meet somewhere", check_machines}};
  const CommandHelp help = {
      "phalanx launch --nproc N [flags] [--] COMMAND [flags of the command]",
      "Starts N processes of `phalanx COMMAND` as the ranks of one run, and passes their output "
      "on: "
      "that of rank 0 as it is,\nthat of the others and all errors after \"[rank] \". When one "
      "rank "
      "fails, all end, and the first to fail is named.\nSIGTERM, SIGINT and SIGUSR1 go on to every "
      "rank.",
      "phalanx launch --nproc 4 pretrain --config recipe.yaml --tensor-model-parallel-size 4"};
  const size_t own = own_flags(args);
  if (const auto exit_code = parse_args(set, rules, help, args.first(own))) return *exit_code;
  std::span<const std::string> command = args.subspan(own);
  if (!command.empty() && command[0] == "--") command = command.subspan(1);
  if (command.empty())
    throw UsageError(
        "launch: no command to start\n  hint: phalanx launch --nproc 4 pretrain --config "
        "recipe.yaml");

  LocalRanks ranks{.command = {std::filesystem::read_symlink("/proc/self/exe").string()},
                   .count = int(options.nproc),
                   .first_rank = int(options.node_rank * options.nproc),
                   .world_size = int(options.nnodes * options.nproc),
                   .master_host = options.master_addr,
                   .port = int(options.master_port.value_or(0))};
  ranks.command.insert(ranks.command.end(), command.begin(), command.end());
  const LocalRanksResult result = run_local_ranks(ranks, kExitSignal, print_line);
  if (result.first_failure) {
    const RankEnd& end = *result.first_failure;
    fmt::print(stderr, "error: {}, first of all\n", describe(end));
    return end.signal != 0 ? 128 + end.signal : end.exit_code;
  }
  return result.stopped ? kExitSignal : kExitDone;
}

}  // namespace phx
