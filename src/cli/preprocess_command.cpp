#include "phalanx/cli/preprocess_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/base/terminal.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/data/data_config.h"
#include "phalanx/data/preprocess/preprocess.h"
#include "phalanx/data/preprocess/text_input.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/train/stop_signals.h"

namespace phx {
namespace {

enum class OnError { stop, skip };
constexpr auto option_names(OnError) { return std::array{"stop", "skip"}; }

struct PreprocessFlags {
  std::vector<std::string> input;
  std::vector<std::string> json_keys = {"text"};
  std::string output_prefix;
  bool append_eod = false;
  int64_t workers = 0;
  int64_t partitions = 1;
  bool keep_sequential_samples = false;
  OnError on_error = OnError::stop;
  std::optional<int64_t> vocab_size;
  DataConfig data;

  template <class Field>
  void each(Field&& field) {
    field("input", input,
          "files or patterns: JSON lines, or .txt with a document a line; also .gz and .zst; "
          "folders, in which every text file is a document; - for standard input",
          Required{});
    field("json-keys", json_keys, "keys of a line's object whose texts are documents");
    field("output-prefix", output_prefix, "PREFIX of PREFIX_KEY_document.bin and .idx", Required{});
    field("append-eod", append_eod, "append the end-of-document token to every document");
    field("workers", workers, "threads that tokenize; the files do not depend on it",
          InRange{0, 4096}, DefaultIs{"one a core"});
    field("partitions", partitions,
          "distribute lines over this many parts, which are then joined (Megatron's order)",
          InRange{1, 4096});
    field("keep-sequential-samples", keep_sequential_samples,
          "keep the order of the lines whatever --partitions is");
    field("on-error", on_error, "what to do with a line that is not JSON or lacks a key");
    field("vocab-size", vocab_size, "number of ids, if the tokenizer does not define it",
          Positive{});
    data.TokenizerConfig::each(field);
  }
};

std::span<const CatalogueEntry> other_flags() {
  using Class = CatalogueEntry::Class;
  static const CatalogueEntry list[] = {
      {.name = "split-sentences",
       .kind = Class::refused,
       .arity = {0, 0},
       .reason = "documents are not cut into sentences: that is for BERT"},
      {.name = "keep-newlines",
       .kind = Class::refused,
       .arity = {0, 0},
       .reason = "it belongs to --split-sentences, which is not in this build"},
      {.name = "lang",
       .kind = Class::refused,
       .reason = "it belongs to --split-sentences, which is not in this build"},
      {.name = "log-interval", .kind = Class::implied, .reason = "progress is shown all the time"},
      {.name = "dataset-impl",
       .kind = Class::refused,
       .reason = "pairs are written as Megatron maps them",
       .accepts = "mmap"},
  };
  return list;
}

void check_tokenizer(const OptionSet& options, Problems& problems) {
  for (const char* name : {"tokenizer-type", "tokenizer-model", "vocab-file"})
    if (options.active(name)) return;
  problems.push_back({ProblemKind::rule, "--tokenizer-type",
                      "--tokenizer-type or --tokenizer-model is required",
                      "--tokenizer-type ByteTokenizer needs no file"});
}

// Leaves by way of everything that removes its temporary files.
struct Stopped {
  int signal;
};

// Redrawn a few times a second.
class Watcher {
 public:
  Watcher(Terminal& terminal, const StopSignals& signals)
      : terminal_(terminal), signals_(signals) {}
  void operator()(const PreprocessProgress& progress) {
    if (const int signal = signals_.caught()) throw Stopped{signal};
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    terminal_.set_status(progress_line(progress));
  }

 private:
  Terminal& terminal_;
  const StopSignals& signals_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace

int run_preprocess(std::span<const std::string> args) {
  PreprocessFlags flags;
  OptionSet set;
  set.add("Preprocess", flags);
  set.add(other_flags());
  const Rule rules[] = {{"there is a tokenizer", check_tokenizer}};
  const CommandHelp help = {
      "phalanx preprocess --input FILE ... --output-prefix PREFIX [flags]",
      "Tokenizes text and writes a pair of files for --data-path.",
      "phalanx preprocess --input 'corpus/*.jsonl.zst' --output-prefix data/corpus --append-eod "
      "--tokenizer-type HuggingFaceTokenizer --tokenizer-model llama/tokenizer.json"};
  if (const auto exit_code = parse_args(set, rules, help, args)) return *exit_code;

  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(flags.data, flags.vocab_size);
  const int cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const PreprocessOptions options{
      .inputs = find_inputs(flags.input),
      .json_keys = flags.json_keys,
      .output_prefix = flags.output_prefix,
      .append_eod = flags.append_eod,
      .with_special = flags.data.tokenizer_hf_include_special_tokens,
      .workers = flags.workers > 0 ? int(flags.workers) : cores,
      .partitions = flags.keep_sequential_samples ? 1 : int(flags.partitions),
      .skip_broken = flags.on_error == OnError::skip};
  const auto terminal = std::make_shared<Terminal>();
  log_to(terminal, LogLevel::info);
  terminal->print(str_cat("tokenizer: ", tokenizer->description(), "; ", options.inputs.size(),
                          options.inputs.size() == 1 ? " file" : " files"));
  const StopSignals signals;
  Watcher watcher(*terminal, signals);
  PreprocessReport report;
  try {
    report = preprocess(options, *tokenizer, std::ref(watcher));
  } catch (const Stopped& stopped) {
    terminal->clear_status();
    terminal->print(str_cat("stopped by ", StopSignals::name(stopped.signal),
                            ": nothing was written, and files under ", flags.output_prefix,
                            " are as before"));
    return kExitSignal;
  }
  terminal->clear_status();
  for (const PreprocessReport::Output& output : report.outputs)
    terminal->print(fmt::format("{}: {} documents, {} tokens", output.prefix.native(),
                                format_thousands(output.documents),
                                format_thousands(output.tokens)));
  if (std::ranges::all_of(report.outputs, [](const auto& out) { return out.documents == 0; }))
    log_warning("there is not one document in the input: a run cannot train on these files");
  if (report.skipped > 0)
    terminal->print(fmt::format("{} broken lines were skipped, the first: {}",
                                format_thousands(report.skipped), report.first_skipped));
  const double seconds = std::max(report.progress.seconds, 1e-9);
  terminal->print(fmt::format("{:.1f} MB of text in {}: {:.1f} MB/s",
                              double(report.progress.bytes_text) / 1e6, format_duration(seconds),
                              double(report.progress.bytes_text) / 1e6 / seconds));
  return kExitDone;
}

}  // namespace phx
