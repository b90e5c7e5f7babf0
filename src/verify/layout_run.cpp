#include "phalanx/verify/layout_run.h"

#include "phalanx/base/error.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/router_report.h"
#include "phalanx/verify/collector.h"

namespace phx {

namespace {

std::map<std::string, double> router_values(const TransformerConfig& model,
                                            const std::vector<double>& tally) {
  std::map<std::string, double> values;
  for (const auto& [layer, report] : router_reports(model, tally).layers) {
    const auto put = [&values, &layer = layer](const std::string& name, double value) {
      values[str_cat(name, " of layer ", layer)] = value;
    };
    put("largest load", report.most);
    put("smallest load", report.fewest);
    put("entropy", report.entropy);
    put("dropped share", report.dropped);
    for (const auto& [name, loss] : report.losses) put(name, loss);
  }
  return values;
}

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
  one.train.recompute_keep_attention = false;
  one.train.mlp_chunks_for_training = 1;
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
      if (config.model.moe.any()) {
        const std::vector<double> tally = session.step.router_tally();  // collective
        if (mesh.rank() == 0) step.routers = router_values(config.model, tally);
      }
      if (run.keep_gradients)
        collector.add(step.gradients, session.store, session.store.gradients(),
                      session.store.kept_gradients(), session.data_parallel.owned());
    }
    if (run.evaluate) {
      PHX_CHECK(session.valid_batches.has_value(), "the data has no part to evaluate on");
      const double loss = *session.step.evaluate(*session.valid_batches, 0, 1);
      if (mesh.rank() == 0) outcome.evaluation = loss;
    }
    session.data_parallel.wait_for_weights();
    const auto add_all = [&](GlobalTensors& into, const ParameterStore& store) {
      collector.add(into, store, store.weights(), store.kept_weights(), store.kept_weights());
    };
    add_all(outcome.weights, session.store);
    if (!session.frozen.parameters().empty()) add_all(outcome.weights, session.frozen);
    if (!session.buffers.parameters().empty()) add_all(outcome.buffers, session.buffers);
  });
  return outcome;
}

}  // namespace phx
