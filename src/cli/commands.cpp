// Dispatch by hand: a subcommand owns its arguments, Megatron's conventions and all, so there is
// nothing left for an argument library to parse here.
#include "phalanx/cli/commands.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <iostream>
#include <vector>

#include "phalanx/base/mapped_faults.h"
#include "phalanx/base/options.h"
#include "phalanx/cli/build_info.h"
#include "phalanx/cli/convert_command.h"
#include "phalanx/cli/corpus_command.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/generate_command.h"
#include "phalanx/cli/inspect_command.h"
#include "phalanx/cli/launch_command.h"
#include "phalanx/cli/merge_command.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/plan_command.h"
#include "phalanx/cli/plot_command.h"
#include "phalanx/cli/preprocess_command.h"
#include "phalanx/cli/pretrain_command.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/cli/template_command.h"
#include "phalanx/cli/tokenizer_command.h"
#include "phalanx/cli/tune_command.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/cli/verify_command.h"

namespace phx {
namespace {

int run_flags(std::span<const std::string> args) {
  OptionSet none;
  const CommandHelp help = {"phalanx flags", "Prints the page that lists every flag of pretrain.",
                            "phalanx flags > docs/flags.md"};
  if (const auto exit_code = parse_args(none, {}, help, args)) return *exit_code;
  std::cout << flags_markdown();
  return kExitDone;
}

void print_usage(std::ostream& out) {
  out << "usage: phalanx COMMAND [flags]\n\ncommands:\n";
  for (const Command& command : commands()) {
    std::string name = command.name;
    name.resize(12, ' ');
    out << "  " << name << command.summary << "\n";
  }
  out << "\n`phalanx COMMAND --help` explains a command; `phalanx --version` names this build.\n"
         "\nexample:\n  phalanx pretrain --config recipe.yaml --check-args\n";
}

// A library's own mark before its message means nothing to who reads it.
std::string without_marks(std::string text) {
  for (size_t at; (at = text.find("[json.exception.")) != std::string::npos;) {
    const size_t end = text.find("] ", at);
    if (end == std::string::npos) break;
    text.erase(at, end + 2 - at);
  }
  return text;
}

// Whoever started the program may have closed its input and outputs. The next file that is opened
// would take their place, and a log would be written into a checkpoint.
void open_closed_outputs() {
  for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(standard, F_GETFD) < 0)
      (void)!::open("/dev/null", O_RDWR);  // the lowest that is free
}

// A command that has nothing to do with models.
auto plain(int (*run)(std::span<const std::string> args)) {
  return [run](std::span<const std::string> args, const Catalogue&) { return run(args); };
}

}  // namespace

std::span<const Command> commands() {
  static const Command list[] = {
      {"pretrain", "train or evaluate a model, with Megatron's flags or a YAML recipe",
       run_pretrain},
      {"plan", "print memory, traffic and FLOPs of a run on any number of ranks", run_plan},
      {"tune", "find the fastest algorithms for a run's matrix products on this GPU", run_tune},
      {"launch", "start the ranks of a run as processes of this machine", run_launch},
      {"verify", "compare a layout with one rank in fp64, on CPUs", run_verify},
      {"preprocess", "turn text into Megatron's .bin/.idx token files", plain(run_preprocess)},
      {"merge", "join several .bin/.idx pairs into one", plain(run_merge)},
      {"tokenizer", "encode, decode and show a tokenizer, or train one", plain(run_tokenizer)},
      {"corpus", "write the story corpus, as text, tokens or JSON lines", plain(run_corpus)},
      {"plot", "draw the loss curves of metrics files as an SVG", plain(run_plot)},
      {"inspect", "look into token files and checkpoints", plain(run_inspect)},
      {"generate", "sample text from a checkpoint", run_generate},
      {"convert", "import from, export to, and compare with Hugging Face folders", run_convert},
      {"template", "render chats with a chat template, and mark what --sft trains on",
       plain(run_template)},
      {"flags", "print the page that lists every flag (docs/flags.md)", plain(run_flags)},
  };
  return list;
}

int run_phalanx(std::span<const std::string> args, const Catalogue& catalogue) {
  if (args.empty()) {
    print_usage(std::cerr);
    return kExitUsage;
  }
  const std::string& name = args[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print_usage(std::cout);
    return kExitDone;
  }
  if (name == "--version" || name == "version") {
    std::cout << "phalanx " << program_version();
    if (const std::string id = build_id(); !id.empty()) std::cout << " (build " << id << ")";
    std::cout << "\n";
    return kExitDone;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    names.push_back(command.name);
    if (name != command.name) continue;
    try {
      return command.run(args.subspan(1), catalogue);
    } catch (const UsageError& error) {
      std::cerr << "error: " << without_marks(error.what()) << "\n";
      return kExitUsage;
    } catch (const std::exception& error) {
      std::cerr << "error: " << without_marks(error.what()) << "\n";
      return kExitFailed;
    }
  }
  const std::string near = nearest(name, names);
  std::cerr << "error: " << name << " is no command of phalanx\n  hint: "
            << (near.empty() ? "phalanx --help lists them" : "did you mean " + near + "?") << "\n";
  return kExitUsage;
}

int main(int argc, char** argv, const Catalogue& catalogue) {
  open_closed_outputs();
  handle_mapped_faults(OnMappedFault::end_program);
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit becomes an error that names the file
  return run_phalanx(std::vector<std::string>(argv + 1, argv + argc), catalogue);
}

}  // namespace phx
