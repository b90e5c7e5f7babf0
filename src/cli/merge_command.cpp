#include "phalanx/cli/merge_command.h"

#include <fmt/format.h>

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/data/indexed/indexed_writer.h"

namespace phx {
namespace {

struct MergeFlags {
  std::vector<std::string> input;
  std::string output_prefix;

  template <class Field>
  void each(Field&& field) {
    field("input", input,
          "a folder, all of whose pairs are taken in the order of their names; or prefixes",
          Required{});
    field("output-prefix", output_prefix, "PREFIX of the new pair", Required{});
  }
};

std::vector<Path> pairs_in(const Path& folder) {
  std::vector<Path> prefixes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Path& file = entry.path();
    if (file.extension() == ".bin") {
      const Path index = idx_file(Path(file).replace_extension());
      PHX_CHECK(std::filesystem::exists(index), file.native(), " has no ",
                index.filename().native(),
                " beside it\n  hint: make the pair again, or move it out of the folder if it is no "
                "part of the data");
    }
    if (file.extension() != ".idx") continue;
    const Path prefix = Path(file).replace_extension();
    PHX_CHECK(std::filesystem::exists(bin_file(prefix)), file.native(), " has no ",
              bin_file(prefix).filename().native(), " beside it");
    prefixes.push_back(prefix);
  }
  PHX_CHECK(!prefixes.empty(), folder.native(), " holds no pairs of .bin and .idx files");
  std::ranges::sort(prefixes);
  return prefixes;
}

std::vector<Path> prefixes_of(std::span<const std::string> inputs) {
  std::vector<Path> prefixes;
  for (const std::string& input : inputs) {
    if (!std::filesystem::is_directory(input)) {
      prefixes.emplace_back(input);
      continue;
    }
    const std::vector<Path> more = pairs_in(input);
    prefixes.insert(prefixes.end(), more.begin(), more.end());
  }
  return prefixes;
}

}  // namespace

int run_merge(std::span<const std::string> args) {
  MergeFlags flags;
  OptionSet set;
  set.add("Merge", flags);
  const CommandHelp help = {"phalanx merge --input FOLDER --output-prefix PREFIX",
                            "Joins pairs of token files into one, in the order of their names.",
                            "phalanx merge --input parts/ --output-prefix data/all"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  const std::vector<Path> prefixes = prefixes_of(flags.input);
  merge_datasets(prefixes, flags.output_prefix);
  const IndexedDataset merged(flags.output_prefix);
  fmt::print("{}: {} pairs, {} documents, {} tokens\n", flags.output_prefix, prefixes.size(),
             format_thousands(merged.num_documents()), format_thousands(merged.num_tokens()));
  return kExitDone;
}

}  // namespace phx
