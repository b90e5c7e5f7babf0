#include "cli/train_main.h"

#include <csignal>
#include <iostream>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cli/exit_codes.h"
#include "train/trainer.h"

namespace phx {

RuntimeOptions runtime_options(const TrainConfig& train) {
  RuntimeOptions options;
  std::string why;
  const bool wants_cuda =
      train.device == DeviceChoice::automatic && !train.fp64;  // f64 is for the CPU
  const bool cuda = train.device == DeviceChoice::cuda || (wants_cuda && cuda_available(&why));
  if (train.device == DeviceChoice::cuda)
    PHX_CHECK(cuda_available(&why), "--device cuda: ", why, "\n  hint: --device cpu");
  options.kind = cuda ? DeviceKind::cuda : DeviceKind::cpu;
  options.threads = train.threads > 0 ? int(train.threads)
                                      : int(std::max(1u, std::thread::hardware_concurrency()));
  options.deterministic = train.deterministic_mode;
  return options;
}

int train_main(const PretrainOptions& options) {
  const auto terminal = std::make_shared<Terminal>();
  log_to(terminal, LogLevel::info);

  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe behind the log must not end a run
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit becomes an error that names the file
  const RunConfig config{.model = options.model,
                         .optim = options.optim,
                         .train = options.train,
                         .data = options.data,
                         .json = options.to_json().dump()};
  const Sources sources(config);
  Runtime runtime(runtime_options(options.train));
  terminal->print(str_cat(
      "device: ", runtime.description(),
      runtime.kind() == DeviceKind::cpu ? str_cat(", ", runtime.threads().size(), " threads") : "",
      ", weights in ", model_dtype(options.train.precision())));
  if (runtime.deterministic() && runtime.kind() == DeviceKind::cuda)
    terminal->print(
        "deterministic mode: attention by our own kernels, whose backward adds in one order");
  Session session(config, sources, runtime.device());
  terminal->print(str_cat("model: ", format_thousands(session.store.num_elements()),
                          " parameters; data: ", session.data_description));
  if (!options.train.save.empty()) {
    make_folder(options.train.save);
    write_file(Path(options.train.save) / "options.json", options.to_json().dump(2) + "\n");
  }
  Trainer trainer(session, *terminal);
  switch (trainer.run()) {
    case RunEnd::finished:
    case RunEnd::stopped_early:
      return kExitDone;
    case RunEnd::stopped_by_signal:
      return kExitSignal;
  }
  return kExitDone;
}

}  // namespace phx
