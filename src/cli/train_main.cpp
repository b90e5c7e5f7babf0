#include "phalanx/cli/train_main.h"

#include <climits>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/log.h"
#include "phalanx/base/mapped_faults.h"
#include "phalanx/checkpoint/folder_lock.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/not_in_this_build.h"
#include "phalanx/cli/run_settings.h"
#include "phalanx/comm/machine_limits.h"
#include "phalanx/comm/process_environment.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/comm/world.h"
#include "phalanx/kernels/attention_dropout.h"
#include "phalanx/train/frozen_modules.h"
#include "phalanx/train/num_parameters.h"
#include "phalanx/train/save_folder.h"
#include "phalanx/train/trainer.h"

namespace phx {

RuntimeOptions runtime_options(const TrainConfig& train) {
  RuntimeOptions options;
  std::string why;
  // No GPU kernel computes in doubles, so `auto` is the CPU for them.
  const bool cuda =
      train.device == DeviceChoice::cuda ||
      (train.device == DeviceChoice::automatic && !train.fp64 && cuda_available(&why));
  if (train.device == DeviceChoice::cuda)
    PHX_CHECK(cuda_available(&why), "--device cuda: ", why, "\n  hint: --device cpu");
  options.kind = cuda ? DeviceKind::cuda : DeviceKind::cpu;
  options.threads = train.threads > 0 ? int(train.threads)
                                      : int(std::max(1u, std::thread::hardware_concurrency()));
  options.deterministic = train.deterministic_mode;
  options.cudnn_attention = train.cudnn_attention;
  options.gemm_table = train.gemm_table;
  return options;
}

namespace {

// As they are saved: whoever reads them later may be in another folder. Nothing compares these
// paths when a run goes on, but the bytes of the files (train/data_fingerprint.h).
PretrainOptions options_to_keep(PretrainOptions options) {
  for (std::string* path :
       {&options.data.tokenizer_model, &options.data.vocab_file, &options.data.merge_file})
    if (!path->empty() && std::filesystem::exists(*path))
      *path = std::filesystem::absolute(*path).string();
  return options;
}

}  // namespace

RunConfig run_config(const PretrainOptions& options) {
  return {.catalogue = options.catalogue,
          .family = options.family(),
          .model = options.model,
          .parallel = options.parallel,
          .optim = options.optim,
          .train = options.train,
          .data = options.data,
          .sft = options.sft,
          .json = options_to_keep(options).to_json()};
}

namespace {

int exit_code(RunEnd end) { return end == RunEnd::stopped_by_signal ? kExitSignal : kExitDone; }

std::string described(Runtime& runtime, const Mesh& mesh, const PretrainOptions& options) {
  std::string text = str_cat("device: ", runtime.description());
  if (runtime.kind() == DeviceKind::cpu)
    text += str_cat(", ", runtime.threads().size(), " threads", mesh.size() > 1 ? " a rank" : "");
  text += str_cat(", weights in ", model_dtype(options.train.precision()));
  const AxisSizes& sizes = mesh.sizes();
  if (mesh.size() > 1)
    text += str_cat("; ranks: ", mesh.size(), " = TP ", sizes.tp, " x CP ", sizes.cp, " x DP ",
                    sizes.dp, " x PP ", sizes.pp);
  const AxisSizes& experts = mesh.expert_sizes();
  if (mesh.size() > 1 && options.model.moe.any())
    text += str_cat("; experts: EP ", experts.ep, " x ETP ", experts.tp, " x DP ", experts.dp);
  return text;
}

// For people: nothing reads it, so that a run goes on without it.
void keep_options(const PretrainOptions& options) {
  try {
    write_file(Path(options.train.save) / "options.json",
               options_to_keep(options).to_json(2) + "\n");
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

// One rank's part of the run.
RunEnd run_rank(const PretrainOptions& options, const RunConfig& config, const Sources& sources,
                const Mesh& mesh, Runtime& runtime, Terminal& terminal,
                const TrainerOptions& trainer_options) {
  terminal.print(described(runtime, mesh, options));
  const bool saves = !options.train.save.empty() && !options.train.skip_train;
  std::optional<FolderLock> lock;
  if (saves && mesh.rank() == 0) {
    lock.emplace(options.train.save);
    if (const auto& dead = lock->taken_over_from())
      log_warning(str_cat("--save ", options.train.save, " was held by ", dead->description(),
                          ", which is dead: its lock is taken over"));
    check_save_folder(options.train);
  }
  Session session(config, sources, runtime.device(), mesh);
  const int64_t frozen =
      num_frozen_parameters(config.family, config.model, config.train.freeze_modules);
  terminal.print(str_cat(
      "model: ", format_thousands(num_parameters(config.family, config.model)), " parameters",
      frozen > 0 ? str_cat(", ", format_thousands(frozen), " of them frozen") : "",
      "; data: ", session.data_description));
  const double dropout = config.model.attention_dropout;
  if (const double applied = kernels::attention_dropout_probability(dropout); applied != dropout)
    terminal.print(str_cat("--attention-dropout ", dropout, " is applied as ",
                           std::lround(applied * 256), "/256 = ", applied));
  if (lock) keep_options(options);
  return Trainer(session, terminal, trainer_options).run();
}

}  // namespace

namespace {

// The fewest ranks that hold the same weights: data-parallel and context-parallel ones, or those
// that have the same experts.
int64_t copies_of_weights(const PretrainOptions& options, int world) {
  const ParallelConfig& ranks = options.parallel;
  const int64_t stage = world / ranks.pipeline_model_parallel_size;
  int64_t copies = stage / ranks.tensor_model_parallel_size;
  if (options.model.moe.any())
    copies =
        std::min(copies, stage / (ranks.expert_model_parallel_size * expert_tensor_ranks(ranks)));
  return std::max<int64_t>(1, copies);
}

}  // namespace

int64_t least_bytes(const PretrainOptions& options, int world) {
  const auto parameters = double(num_parameters(options.family(), options.model));
  const auto copies = double(copies_of_weights(options, world));
  const auto weight = double(size_of(model_dtype(options.train.precision())));
  const auto times = [&](Sharding shards_it) {
    return options.parallel.sharding() >= shards_it ? 1 : copies;
  };
  const UpdateRule& rule =
      entry_of(options.catalogue.optimizers, options.optim.optimizer, "--optimizer");
  const auto states = double(rule.states(options.optim, DType::f32).size());
  const double bytes = times(Sharding::optim_grads_params) * weight +
                       times(Sharding::optim_grads) * weight + times(Sharding::optim) * states * 4;
  return int64_t(std::min(parameters * bytes, 9e18));
}

Problems room_problems(const PretrainOptions& options, int64_t ranks, bool counts_state) {
  if (ranks <= 1) return {};
  const int world = int(std::min<int64_t>(ranks, INT_MAX));
  const int64_t state = counts_state ? least_bytes(options, world) : 0;
  const auto short_of = lacks_room_for_threads(world, state, machine_limits());
  if (!short_of) return {};
  const bool asked = options.parallel.local_ranks.has_value();
  return {{.flag = asked ? "--local-ranks" : "",
           .text = str_cat(asked ? "--local-ranks " : "the layout's ranks, ", world, ": ",
                           short_of->what),
           .hint = short_of->way_out}};
}

namespace {

// All ranks as threads of this process.
RunEnd run_as_threads(const PretrainOptions& options, const RunConfig& config,
                      const Sources& sources, int world, RuntimeOptions device, Terminal& terminal,
                      const WorldOptions& waits) {
  PHX_CHECK(device.kind == DeviceKind::cpu, world,
            " ranks in one process run on CPUs\n  hint: phalanx launch --nproc ", world,
            " starts a process for each GPU; --device cpu runs them here");
  // Ranks share the cores; more threads than cores would only take turns.
  if (options.train.threads == 0) device.threads = std::max(1, device.threads / world);
  const Layout layout = make_layout(config.layout(), world);
  Terminal silent(stdout, stderr, TerminalMode::silent);
  RunEnd end = RunEnd::finished;
  run_thread_ranks(world, waits, [&](World& ranks) {
    Runtime runtime(device);
    const Mesh mesh(ranks, layout.mesh);
    const bool speaks = mesh.rank() == 0;
    const RunEnd own = run_rank(options, config, sources, mesh, runtime, speaks ? terminal : silent,
                                {.catches_signals = speaks,
                                 .ranks_here = world,
                                 .folder_is_locked = true,
                                 .world = &ranks});
    if (speaks) end = own;
  });
  return end;
}

// This process is one rank of several.
RunEnd run_as_process(const PretrainOptions& options, const RunConfig& config,
                      const LaunchEnvironment& launch, RuntimeOptions device, Terminal& terminal,
                      const WorldOptions& waits) {
  if (options.train.threads == 0) device.threads = std::max(1, device.threads / launch.local_size);
  const std::unique_ptr<World> world = make_world(device.kind, waits);
  if (device.kind == DeviceKind::cuda) device.cuda_ordinal = world->gpu();
  Runtime runtime(device);  // goes after the mesh, whose groups are watched on its streams
  Terminal silent(stdout, stderr, TerminalMode::silent);
  try {
    const Sources sources(config);  // may be missing on this machine alone
    const Mesh mesh(*world, make_layout(config.layout(), world->size()).mesh);
    return run_rank(options, config, sources, mesh, runtime, mesh.rank() == 0 ? terminal : silent,
                    {.answers_signals = launch.local_rank == 0,
                     .ranks_here = launch.local_size,
                     .folder_is_locked = true,
                     .world = launch.under_mpirun() ? nullptr : world.get()});
  } catch (const std::exception& error) {
    world->fail(error.what());  // the others need not wait for this rank
    throw;
  }
}

}  // namespace

int train_main(const PretrainOptions& options, const std::optional<LaunchEnvironment>& launch) {
  const auto terminal = std::make_shared<Terminal>();
  log_to(terminal, LogLevel::info);

  std::signal(SIGPIPE, SIG_IGN);              // a closed pipe behind the log must not end a run
  handle_mapped_faults(OnMappedFault::note);  // batches are checked before they are trained on
  const std::vector<std::string> given = environment_variables();
  const std::vector<std::string> notes = prepare_process(launch);  // before there are threads
  const RunConfig config = run_config(options);
  const RuntimeOptions device = runtime_options(options.train);
  if (device.kind == DeviceKind::cuda) {  // which --device auto may come to
    const Problems lacking = not_on_gpus(options);
    PHX_CHECK(lacking.empty(), "this run needs CPUs\n", format_problems(lacking));
  }
  if (device.kind == DeviceKind::cuda && (!launch || launch->rank == 0))
    for (const std::string& note : notes) log_warning(note);
  WorldOptions waits{.timeout = std::chrono::minutes(options.parallel.distributed_timeout_minutes)};
  if (launch && launch->size > 1) {
    waits.settings = run_settings(options, name(device.kind), given);
    return exit_code(run_as_process(options, config, *launch, device, *terminal, waits));
  }
  const Sources sources(config);
  const int64_t wanted = options.parallel.local_ranks.value_or(fewest_ranks(options.parallel));
  const int world = int(std::min<int64_t>(wanted, INT_MAX));
  if (world > 1)
    return exit_code(run_as_threads(options, config, sources, world, device, *terminal, waits));
  Runtime runtime(device);
  return exit_code(run_rank(options, config, sources, Mesh(), runtime, *terminal, {}));
}

}  // namespace phx
