// Options that are sound and known, but that a run of this build does not act on yet.
#pragma once

#include <span>
#include <string>

#include "phalanx/base/options.h"
#include "phalanx/cli/pretrain_options.h"

namespace phx {

struct LackingOption {
  const char* flag;
  const char* reason;
  const char* hint;
  bool (*is_set)(const PretrainOptions& options);
};
std::span<const LackingOption> lacking_options();  // those with one reason stand together

// A refusal for each such option that is set, and with --device cuda for what GPUs lack: errors of
// a run, notes of --check-args.
Problems not_in_this_build(const PretrainOptions& options);

// What only CPUs can run of it.
Problems not_on_gpus(const PretrainOptions& options);

// "note: this build cannot run these yet: ..."; empty when there are none.
std::string format_notes(const Problems& problems);

}  // namespace phx
