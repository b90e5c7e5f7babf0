#include "phalanx/cli/inspect_command.h"

#include <iostream>

#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/inspect_checkpoint.h"
#include "phalanx/cli/inspect_data.h"

namespace phx {
namespace {

struct Kind {
  const char* name;
  const char* summary;
  int (*run)(std::span<const std::string> args);  // without the kind
};

constexpr Kind kKinds[] = {
    {"data", "a pair of token files, and the samples that training would see", run_inspect_data},
    {"checkpoint", "tensors, statistics and options of a checkpoint; differences of two",
     run_inspect_checkpoint},
};

void print_usage(std::ostream& out) {
  out << "usage: phalanx inspect KIND NAME [flags]\n\nkinds:\n";
  for (const Kind& kind : kKinds) {
    std::string name = kind.name;
    name.resize(12, ' ');
    out << "  " << name << kind.summary << "\n";
  }
  out << "\nexamples:\n  phalanx inspect data data/corpus_text_document --seq-length 2048 --sample "
         "0\n"
         "  phalanx inspect checkpoint out/demo/checkpoints --verify\n";
}

}  // namespace

int run_inspect(std::span<const std::string> args) {
  if (!args.empty() && (args[0] == "--help" || args[0] == "-h")) {
    print_usage(std::cout);
    return kExitDone;
  }
  for (const Kind& kind : kKinds)
    if (!args.empty() && args[0] == kind.name) return kind.run(args.subspan(1));
  if (!args.empty()) std::cerr << "error: " << args[0] << " is no kind that could be inspected\n";
  print_usage(std::cerr);
  return kExitUsage;
}

}  // namespace phx
