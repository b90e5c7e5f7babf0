#include "phalanx/train/catalogue.h"

namespace phx {

Catalogue standard_catalogue() {
  return {.models = standard_models(),
          .datasets = {},
          .losses = standard_losses(),
          .lr_schedules = standard_lr_schedules(),
          .pipeline_schedules = standard_schedule_kinds(),
          .optimizers = standard_update_rules()};
}

}  // namespace phx
