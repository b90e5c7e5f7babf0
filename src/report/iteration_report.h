// What is known after an iteration, or after a validation. The log line, TensorBoard and the
// metrics file are three views of these two structs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace phx {

// In the order in which they are shown: {"lm loss", 2.3}, {"load_balancing_loss", 1.0}, ...
using NamedLosses = std::vector<std::pair<std::string, double>>;

// How routers used their experts in the last iteration.
struct RouterReport {
  // Of the expert with the most, and with the fewest rows, as multiples of the mean; the worst
  // layer of a report on all of them.
  double most = 1, fewest = 1;
  double entropy =
      0;  // of a token's scores, in nats: 0 if it knows one expert, ln(experts) at most
  double dropped = 0;       // share of choices
  NamedLosses losses = {};  // without their coefficients
  // Of a layer: each expert's rows as a multiple of the mean. Empty in a report on all layers.
  std::vector<double> loads = {};
};

// Averages are over the iterations since the last report. What is not known is left out of all
// views.
struct IterationReport {
  int64_t iteration = 0;
  int64_t train_iterations = 0;  // the last one of the run
  int64_t consumed_samples = 0;
  int64_t skipped_samples = 0;
  double milliseconds = 0.;  // per iteration
  std::optional<double> tflops_per_gpu = {};
  std::optional<double> joules_per_gpu = {};  // per iteration
  std::optional<double> watts_per_gpu = {};
  double learning_rate = 0.;
  std::optional<double> decoupled_learning_rate = {};
  int64_t global_batch_size = 0;
  NamedLosses losses = {};
  double loss_scale = 1.;
  std::optional<double> grad_norm = {};
  std::optional<int64_t> num_zeros = {};  // in the gradients
  std::optional<double> params_norm = {};
  int64_t skipped_iterations = 0;
  int64_t nan_iterations = 0;
  int64_t world_size = 1;

  // Ours, shown after Megatron's.
  std::optional<double> tokens_per_second = {};  // of all ranks together
  std::optional<double> mfu = {};                // share of the device's peak, 0 .. 1
  std::optional<RouterReport> routers = {};      // of all layers with experts
  std::vector<std::pair<int64_t, RouterReport>> router_layers = {};  // layer by layer, if asked for
};

struct ValidationReport {
  int64_t iteration = 0;
  int64_t consumed_samples = 0;
  NamedLosses losses = {};
  // "" during training; "on validation set" or "on test set" at the end.
  std::string where = {};
  // With several validation sets, the name of this one, behind the tags: "-wiki".
  std::string suffix = {};
};

// Bounded, as in Megatron, so that an untrained model prints a number.
inline double perplexity(double loss) { return std::exp(std::min(20., loss)); }

}  // namespace phx
