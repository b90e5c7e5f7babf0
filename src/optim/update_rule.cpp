#include "phalanx/optim/update_rule.h"

#include "phalanx/kernels/adamw.h"
#include "phalanx/kernels/sgd.h"

namespace phx {
namespace {

DType moment_type(StateDType type, DType acc) {
  return type == StateDType::bf16 ? DType::bf16 : acc;
}

UpdateRule adam() {
  return {.name = "adam",
          .help = "AdamW",
          .states =
              [](const OptimizerConfig& config, DType acc) {
                return std::vector<RuleState>{
                    {"exp_avg", moment_type(config.exp_avg_dtype, acc)},
                    {"exp_avg_sq", moment_type(config.exp_avg_sq_dtype, acc)}};
              },
          .update =
              [](const UpdateCall& call, const OwnOptions&) {
                kernels::adamw(call.grad, call.scalars,
                               {.beta1 = call.config.adam_beta1,
                                .beta2 = call.config.adam_beta2,
                                .eps = call.config.adam_eps,
                                .decay = call.decays ? 1.0 : 0.0,
                                .lr = call.lr,
                                .seed = call.seed,
                                .first = call.first},
                               {.weight = call.weight,
                                .master = call.master,
                                .m = call.states[0],
                                .v = call.states[1]});
              }};
}

UpdateRule sgd() {
  return {.name = "sgd",
          .help = "gradient descent with momentum",
          .states =
              [](const OptimizerConfig&, DType acc) {
                return std::vector<RuleState>{{"momentum_buffer", acc}};
              },
          .update =
              [](const UpdateCall& call, const OwnOptions&) {
                kernels::sgd(
                    call.grad, call.scalars,
                    {.momentum = call.config.sgd_momentum,
                     .decay = call.decays ? 1.0 : 0.0,
                     .lr = call.lr},
                    {.weight = call.weight, .master = call.master, .momentum = call.states[0]});
              }};
}

}  // namespace

std::vector<UpdateRule> standard_update_rules() { return {adam(), sgd()}; }

}  // namespace phx
