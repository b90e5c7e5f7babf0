// Arguments of commands that take a run's flags beside their own: plan, tune.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/options.h"
#include "cli/pretrain_options.h"

namespace phx {

struct SplitArgs {
  std::vector<std::string> own, pretrain;
  bool help = false;
};

// Flags of the command stand among those of pretrain.
SplitArgs split_args(const OptionSet& own, std::span<const std::string> args);

// What neither shapes nor memory depend on may be left out, though a run needs it.
ParseResult parse_run(std::vector<std::string> args, std::optional<int64_t> world);

}  // namespace phx
