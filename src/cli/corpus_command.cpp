#include "phalanx/cli/corpus_command.h"

#include <fmt/format.h>

#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/data/story_corpus.h"
#include "phalanx/data/token_file.h"
#include "phalanx/text/byte_tokenizer.h"

namespace phx {
namespace {

struct CorpusOptions {
  std::string output;
  double megabytes = 4;
  int64_t seed = 1;

  template <class Field>
  void each(Field&& field) {
    field("output", output,
          "file to write; the suffix chooses what: .txt text, a document a line; .jsonl for "
          "preprocess; .u16 or .i32 byte tokens with 256 after each document",
          Required{});
    field("megabytes", megabytes, "how much text, in 10^6 bytes", InRange{0.001, 100000});
    field("seed", seed, "the same seed gives the same text everywhere", NotNegative{});
  }
};

void check_suffix(const OptionSet& options, Problems& problems) {
  const std::string output = options.text("output");
  if (output.empty()) return;
  const Path suffix = Path(output).extension();
  for (const char* known : {".txt", ".jsonl", ".u16", ".i32"}) {
    if (suffix == known) return;
  }
  problems.push_back(
      {ProblemKind::rule, "--output",
       str_cat("--output ", output, ": the suffix should be .txt, .jsonl, .u16 or .i32"),
       "text a document a line, JSON lines, or byte tokens in 16 or 32 bits"});
}

struct Written {
  int64_t documents = 0;
  std::string text;  // as in the .txt file
};

// Documents until there is enough text; `each` puts them where they belong.
template <class Each>
Written write_documents(uint64_t seed, int64_t min_bytes, Each&& each) {
  StoryWriter writer(seed);
  Written written;
  while (static_cast<int64_t>(written.text.size()) < min_bytes) {
    const std::string document = writer.next();
    each(document);
    written.text += document + '\n';
    ++written.documents;
  }
  return written;
}

Written write_as_suffix_says(const Path& path, uint64_t seed, int64_t min_bytes) {
  const Path suffix = path.extension();
  if (suffix == ".u16" || suffix == ".i32") {
    TokenFileWriter file(path);
    const Written written = write_documents(seed, min_bytes, [&](const std::string& document) {
      std::vector<int32_t> tokens = ByteTokenizer::encode(document);
      tokens.push_back(ByteTokenizer::kEod);
      file.append(tokens);
    });
    file.commit();
    return written;
  }
  AtomicFile file(path);
  const Written written = write_documents(seed, min_bytes, [&](const std::string& document) {
    const bool json = suffix == ".jsonl";
    file.write((json ? json_text(nlohmann::json{{"text", document}}) : document) + '\n');
  });
  file.commit();
  return written;
}

}  // namespace

int run_corpus(std::span<const std::string> args) {
  CorpusOptions options;
  OptionSet set;
  set.add("Corpus", options);
  const Rule rules[] = {{"--output has a suffix that says what to write", check_suffix}};
  const CommandHelp help = {
      "phalanx corpus --output FILE [flags]",
      "Writes a corpus of short stories and sums, made by a small grammar from a seed.",
      "phalanx corpus --output stories.u16 --megabytes 8 --seed 1"};
  if (const auto exit_code = parse_args(set, rules, help, args)) return *exit_code;

  const Written written = write_as_suffix_says(options.output, static_cast<uint64_t>(options.seed),
                                               std::llround(options.megabytes * 1e6));
  fmt::print(
      "{}: {} documents, {} bytes of text, unigram entropy {:.4f} nats a byte\n"
      "the first one: {}\n",
      options.output, format_thousands(written.documents),
      format_thousands(static_cast<int64_t>(written.text.size())),
      unigram_entropy(as_bytes(written.text)), written.text.substr(0, written.text.find('\n')));
  return 0;
}

}  // namespace phx
