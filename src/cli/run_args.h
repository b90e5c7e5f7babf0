// Arguments of commands that take a run's flags beside their own: plan, verify, tune. A command
// line of pretrain is taken as it is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/base/options.h"
#include "phalanx/cli/pretrain_options.h"

namespace phx {

struct SplitArgs {
  std::vector<std::string> own, pretrain;
  bool help = false;
};

// Flags of the command stand among those of pretrain.
SplitArgs split_args(const OptionSet& own, std::span<const std::string> args);

// What neither shapes nor memory depend on may be left out, though a run needs it. `world` is what
// the command was told; without it --local-ranks counts, then one copy of the model.
ParseResult parse_run(std::vector<std::string> args, std::optional<int64_t> world,
                      const Catalogue& catalogue);

enum class RunCommand { plan, verify, verify_resume, tune };

// "without meaning for phalanx plan: --save, --lr": flags of a run that were given but that the
// command does not act on, and those that have no effect in any run (`report` of the parsed
// `args`). One line; empty when there are none. `world_is_given`: the command's own flag says how
// many ranks there are.
std::string meaningless_flags(RunCommand command, std::span<const std::string> args,
                              const ParseReport& report, bool world_is_given,
                              const Catalogue& catalogue = standard_catalogue());

}  // namespace phx
