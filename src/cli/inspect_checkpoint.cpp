#include "phalanx/cli/inspect_checkpoint.h"

#include <fmt/format.h>

#include <iostream>
#include <optional>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/usage_error.h"

namespace phx {

namespace {

struct InspectOptions {
  std::optional<int64_t> step;
  std::vector<std::string> diff;
  bool verify = false;
  bool statistics = true;
  bool json = false;

  template <class Field>
  void each(Field&& field) {
    field("ckpt-step", step, "its iteration, where DIR holds several", Positive{},
          DefaultIs{"the newest"});
    field("diff", diff, "the checkpoint to compare with; or two, instead of DIR");
    field("verify", verify, "read everything and check it; say nothing else");
    field("statistics", statistics, "leave out what has to read the tensors");
    field("json", json, "print JSON");
  }
};

// `path` is a checkpoint, or a folder of them.
Path checkpoint_at(const Path& path, const std::optional<int64_t>& step) {
  if (!step && is_native_checkpoint(path)) return path;
  std::optional<int64_t> iteration = step;
  if (const auto found = step ? std::nullopt : checkpoint_to_load(path)) {
    if (!found->warning.empty()) std::cerr << "warning: " << found->warning << "\n";
    iteration = found->iteration;
  }
  PHX_CHECK(iteration, path.string(), " is no checkpoint, and holds none: it has neither ",
            "manifest.json nor latest_checkpointed_iteration.txt");
  return find_checkpoint(path, *iteration);
}

int print_differences(const NativeCheckpoint& a, const NativeCheckpoint& b, bool as_json) {
  const std::vector<TensorDifference> found = differences(a, b);
  if (as_json) {
    nlohmann::json list = nlohmann::json::array();
    for (const TensorDifference& one : found)
      list.push_back({{"name", one.name}, {"what", one.what}, {"largest", one.largest}});
    std::cout << json_text(nlohmann::json{{"first", a.path().string()},
                                          {"second", b.path().string()},
                                          {"differences", list}},
                           2)
              << "\n";
    return found.empty() ? kExitDone : kExitFailed;
  }
  for (const TensorDifference& one : found)
    fmt::print("{}: {}{}\n", one.name, one.what,
               one.largest > 0 ? fmt::format(", by {:.3g} at most", one.largest) : "");
  const size_t all = std::max(a.tensors().size(), b.tensors().size());
  fmt::print("{} of {} tensors differ\n", found.size(), all);
  return found.empty() ? kExitDone : kExitFailed;
}

nlohmann::json tensor_json(const NativeCheckpoint& checkpoint, const std::string& name,
                           const SavedTensor& tensor, bool with_statistics) {
  nlohmann::json entry{{"dtype", safetensors_dtype(tensor.info.dtype)},
                       {"shape", tensor.info.shape},
                       {"pieces", tensor.pieces.size()},
                       {"bytes", piece_bytes(tensor.info, whole_box(tensor.info.shape))}};
  if (!with_statistics) return entry;
  const TensorStatistics found = statistics(checkpoint, name);
  entry.update({{"min", found.least},
                {"max", found.most},
                {"mean", found.mean},
                {"std", found.deviation},
                {"zeros", found.zeros},
                {"not_finite", found.not_finite}});
  return entry;
}

void print_json(const NativeCheckpoint& checkpoint, bool with_statistics) {
  nlohmann::json tensors = nlohmann::json::object(), info = nlohmann::json::object();
  for (const auto& [name, tensor] : checkpoint.manifest().tensors)
    tensors[name] = tensor_json(checkpoint, name, tensor, with_statistics);
  for (const auto& [key, text] : checkpoint.manifest().info) info[key] = parse_json(text);
  std::cout << json_text(nlohmann::json{{"path", checkpoint.path().string()},
                                        {"iteration", checkpoint.iteration()},
                                        {"files", checkpoint.manifest().files.size()},
                                        {"bytes", checkpoint.bytes()},
                                        {"tensors", tensors},
                                        {"info", info}},
                         2)
            << "\n";
}

void print_tensors(const NativeCheckpoint& checkpoint, bool with_statistics) {
  size_t width = 4;
  for (const auto& [name, info] : checkpoint.tensors()) width = std::max(width, name.size());
  fmt::print("{:<{}}  {:<24} {:>10}{}\n", "name", width, "dtype and shape", "size",
             with_statistics
                 ? fmt::format(" {:>10} {:>10} {:>10} {:>10}", "min", "max", "mean", "std")
                 : "");
  for (const auto& [name, info] : checkpoint.tensors()) {
    fmt::print("{:<{}}  {:<24} {:>10}", name, width, describe(info),
               format_bytes(piece_bytes(info, whole_box(info.shape))));
    if (with_statistics) {
      const TensorStatistics found = statistics(checkpoint, name);
      fmt::print(" {:>10.3g} {:>10.3g} {:>10.3g} {:>10.3g}", found.least, found.most, found.mean,
                 found.deviation);
      if (found.not_finite > 0) fmt::print("  {} not finite", found.not_finite);
    }
    fmt::print("\n");
  }
}

void print_text(const NativeCheckpoint& checkpoint, bool with_statistics) {
  const Manifest& manifest = checkpoint.manifest();
  fmt::print("{}: iteration {}, {} tensors in {} {}, {}\n\n", checkpoint.path().string(),
             checkpoint.iteration(), checkpoint.tensors().size(), manifest.files.size(),
             manifest.files.size() == 1 ? "file" : "files", format_bytes(checkpoint.bytes()));
  print_tensors(checkpoint, with_statistics);
  for (const auto& [key, text] : manifest.info) {
    const auto value = parse_json(text);
    fmt::print("\n{}\n", key);
    if (!value.is_object()) {
      fmt::print("  {}\n", json_text(value));
      continue;
    }
    for (const auto& [name, field] : value.items())
      if (!field.is_null())
        fmt::print("  {} {:.<{}} {}\n", name, "",
                   std::max<size_t>(48, name.size() + 1) - name.size(), json_text(field));
  }
}

}  // namespace

int run_inspect_checkpoint(std::span<const std::string> args) {
  std::string folder;
  if (!args.empty() && !args[0].starts_with("-")) {
    folder = args[0];
    args = args.subspan(1);
  }
  InspectOptions options;
  OptionSet set;
  set.add("Inspect", options);
  const CommandHelp help = {
      "phalanx inspect checkpoint DIR [flags]",
      "Shows what is in a checkpoint. DIR is an iter_ folder, or a folder of them.",
      "phalanx inspect checkpoint out/demo/checkpoints --ckpt-step 100 "
      "--diff out/other/checkpoints"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  if (folder.empty() && options.diff.size() == 2) {
    folder = options.diff[0];
    options.diff.erase(options.diff.begin());
  }
  if (folder.empty() || options.diff.size() > 1)
    throw UsageError(
        "phalanx inspect checkpoint wants one DIR, or --diff A B"
        "\n  hint: phalanx inspect checkpoint out/demo/checkpoints");

  const NativeCheckpoint checkpoint(checkpoint_at(folder, options.step));
  if (!options.diff.empty()) {
    const NativeCheckpoint other(checkpoint_at(options.diff[0], options.step));
    return print_differences(checkpoint, other, options.json);
  }
  if (options.verify) {
    checkpoint.verify();
    fmt::print("{}: {} tensors in {} files, {}: every byte is as it was written\n",
               checkpoint.path().string(), checkpoint.tensors().size(),
               checkpoint.manifest().files.size(), format_bytes(checkpoint.bytes()));
    return kExitDone;
  }
  if (options.json) {
    print_json(checkpoint, options.statistics);
  } else {
    print_text(checkpoint, options.statistics);
  }
  return kExitDone;
}

}  // namespace phx
