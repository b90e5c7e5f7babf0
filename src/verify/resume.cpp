#include "phalanx/verify/resume.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/json_lines.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/trainer.h"

namespace phx {
namespace {

using Json = nlohmann::json;

void train(const RunConfig& config, const Sources& sources, int world) {
  const Layout layout = make_layout(config.layout(), world);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere(std::fopen("/dev/null", "w"),
                                                                std::fclose);
  run_thread_ranks(world, {}, [&](World& ranks) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    Terminal terminal(nowhere.get(), nowhere.get(), TerminalMode::silent);
    Trainer(session, terminal, {.catches_signals = false, .measures_peak = false}).run();
  });
}

// The lines of a run's metrics without what a clock says.
std::vector<Json> metrics_of(const Path& path) {
  std::vector<Json> lines;
  read_json_lines(path, [&](const Json& line, int64_t) {
    Json kept = line;
    for (const char* key : {"elapsed ms", "throughput", "tokens per second", "mfu"})
      kept.erase(key);
    lines.push_back(std::move(kept));
  });
  return lines;
}

void compare_metrics(const std::vector<Json>& whole, const std::vector<Json>& parts,
                     ResumeProof& proof) {
  if (whole.size() != parts.size())
    proof.faults.push_back(str_cat("the run in one go logged ", whole.size(),
                                   " lines of metrics, the resumed one ", parts.size()));
  for (size_t i = 0; i < std::min(whole.size(), parts.size()); ++i)
    if (whole[i] != parts[i])
      proof.faults.push_back(str_cat("metrics: ", json_text(whole[i]), " in one go, ",
                                     json_text(parts[i]), " with a stop in between"));
}

void compare_tensors(const NativeCheckpoint& whole, const NativeCheckpoint& parts,
                     ResumeProof& proof) {
  for (const auto& [name, unused] : parts.tensors())
    if (!whole.tensors().contains(name))
      proof.faults.push_back(name + " is in the resumed run's checkpoint alone");
  for (const auto& [name, info] : whole.tensors()) {
    const auto found = parts.tensors().find(name);
    if (found == parts.tensors().end() || !(found->second == info)) {
      proof.faults.push_back(
          str_cat(name, " is ", describe(info), " in one go, ",
                  found == parts.tensors().end() ? "missing" : describe(found->second),
                  " with a stop in between"));
      continue;
    }
    const Box box = whole_box(info.shape);
    const auto size = size_t(box.numel() * size_of(info.dtype));
    std::vector<std::byte> a(size), b(size);
    whole.read(name, box, a);
    parts.read(name, box, b);
    if (a != b) proof.faults.push_back(name + " differs");
    ++proof.tensors;
    proof.bytes += int64_t(size);
  }
}

}  // namespace

ResumeProof prove_resume(const RunConfig& config, const Sources& sources, int world,
                         int64_t iterations, const Path& folder) {
  PHX_CHECK(iterations >= 2, "a run of ", iterations, " iterations has no middle");
  RunConfig whole = config;
  TrainConfig& train_config = whole.train;
  train_config.train_iters = iterations;
  train_config.train_samples = {};
  train_config.exit_interval = train_config.exit_duration_in_mins = {};
  train_config.save_interval = train_config.save_retain_interval =
      train_config.save_hf_interval = {};
  train_config.load = train_config.pretrained_checkpoint = train_config.tensorboard_dir = "";
  train_config.ckpt_step = {};
  train_config.finetune = train_config.skip_train = false;
  train_config.profile = train_config.nvtx_ranges = false;
  train_config.log_interval = iterations;
  RunConfig first = whole, second = whole;
  whole.train.save = (folder / "whole").string();
  whole.train.metrics_file = (folder / "whole.jsonl").string();
  first.train.save = second.train.save = second.train.load = (folder / "parts").string();
  first.train.metrics_file = second.train.metrics_file = (folder / "parts.jsonl").string();
  first.train.exit_interval = iterations / 2;
  for (const RunConfig& run : {whole, first, second}) train(run, sources, world);

  ResumeProof proof;
  const std::vector<Json> metrics = metrics_of(folder / "whole.jsonl");
  for (const Json& line : metrics) {
    if (line.contains("lm loss")) proof.losses.push_back(line.at("lm loss"));
    proof.skipped_iterations += line.value("skipped iterations", int64_t{0});
  }
  compare_metrics(metrics, metrics_of(folder / "parts.jsonl"), proof);
  compare_tensors(NativeCheckpoint(checkpoint_path(folder / "whole", iterations)),
                  NativeCheckpoint(checkpoint_path(folder / "parts", iterations)), proof);
  return proof;
}

}  // namespace phx
