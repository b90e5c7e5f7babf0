#include "verify/layout_run.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "base/error.h"
#include "comm/thread_world.h"

namespace phx {

namespace {

// Puts the ranks' parts of tensors together.
class Collector {
 public:
  explicit Collector(LayoutOutcome& outcome) : outcome_(outcome) {}

  // The elements of flat buffer `flat` that lie in `ranges`.
  void add(GlobalTensors& into, const ParameterStore& store, const Tensor& flat,
           std::span<const FlatRange> ranges) {
    const std::vector<double> values = to_values(flat);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < store.parameters().size(); ++i)
      add(into, *store.parameters()[i], store.range_of(i), values, ranges);
  }

 private:
  void add(GlobalTensors& into, const Parameter& parameter, const FlatRange& local,
           const std::vector<double>& flat, std::span<const FlatRange> ranges) {
    GlobalTensor& global = into[parameter.name()];
    if (global.values.empty()) {
      global.values.assign(size_t(parameter.spec().global_shape.numel()), std::nan(""));
      global.missing = parameter.spec().global_shape.numel();
    }
    for (const Piece& piece : parameter.spec().pieces) {
      for (int64_t row = 0; row < piece.rows; ++row) {
        const int64_t from =
            local.offset + (piece.local_row + row) * parameter.local_columns() + piece.local_col;
        const int64_t to = (piece.global_row + row) * parameter.columns() + piece.global_col;
        const FlatRange wanted{from, piece.cols};
        for (const FlatRange& range : intersection(ranges, {&wanted, 1}))
          for (int64_t at = range.offset; at < range.end(); ++at)
            put(parameter.name(), global, size_t(to + at - from), flat[size_t(at)]);
      }
    }
  }

  void put(const std::string& name, GlobalTensor& global, size_t at, double value) {
    double& slot = global.values[at];
    if (std::isnan(slot)) {
      slot = value;
      --global.missing;
      return;
    }
    const double difference = std::abs(slot - value);
    if (!(difference > 0)) return;
    outcome_.between_replicas = std::max(outcome_.between_replicas, difference);
    if (names_.insert(name).second) outcome_.between_replicas_in.push_back(name);
  }

  LayoutOutcome& outcome_;
  std::mutex mutex_;
  std::set<std::string> names_;
};

}  // namespace

RunConfig on_one_rank(const RunConfig& config, int world) {
  RunConfig one = config;
  one.parallel = ParallelConfig{};
  // One rank's batch is the global batch of all.
  if (config.train.step_batch_size_schedule.empty())
    one.train.global_batch_size =
        config.train.global_batch(data_parallel_size(config.parallel, world));
  one.train.decrease_batch_size_if_needed = false;
  one.train.recompute_granularity = {};
  one.train.recompute_method = {};
  one.train.recompute_num_layers = {};
  one.train.recompute_modules = {};
  one.train.cpu_offloading_num_layers = 0;
  one.optim.optimizer_cpu_offload = false;
  return one;
}

LayoutOutcome run_layout(const RunConfig& config, int world, const LayoutRun& run) {
  return run_layout(config, Sources(config), world, run);
}

LayoutOutcome run_layout(const RunConfig& config, const Sources& sources, int world,
                         const LayoutRun& run) {
  const Layout layout = make_layout(config.layout(), world);
  LayoutOutcome outcome;
  outcome.steps.resize(size_t(run.steps));
  Collector collector(outcome);
  run_thread_ranks(world, {}, [&](World& ranks) {
    Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    for (int64_t i = 0; i < run.steps; ++i) {
      StepOutcome& step = outcome.steps[size_t(i)];
      session.load_batch(session.batch_schedule.after(0, i));
      session.step.run(session.train_batches, {.iteration = i + 1,
                                               .update = i + 1,
                                               .lr = config.optim.lr.value_or(1e-3),
                                               .decoupled_lr = config.optim.decoupled_lr,
                                               .weight_decay = config.optim.weight_decay});
      const StepResults results = session.step.collect();
      if (mesh.rank() == 0) {
        step.loss = results.loss_sum / results.tokens;
        step.grad_norm = results.grad_norm;
      }
      if (run.keep_gradients)
        collector.add(step.gradients, session.store, session.store.gradients(),
                      session.data_parallel.owned());
    }
    if (run.evaluate) {
      PHX_CHECK(session.valid_batches.has_value(), "the data has no part to evaluate on");
      const double loss = *session.step.evaluate(*session.valid_batches, 0, 1);
      if (mesh.rank() == 0) outcome.evaluation = loss;
    }
    session.data_parallel.wait_for_weights();
    const FlatRange all = session.store.all();
    collector.add(outcome.weights, session.store, session.store.weights(), {&all, 1});
  });
  return outcome;
}

double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  PHX_CHECK(a.size() == b.size(), "tensors of ", a.size(), " and ", b.size(), " elements");
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;  // a nan stays
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

}  // namespace phx
