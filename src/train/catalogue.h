// What a program can train: lists of models, datasets, losses and so on. A flag chooses an entry of
// each list by its name. Your own program adds entries and has every command:
//
//   int main(int argc, char** argv) {
//     phx::Catalogue catalogue = phx::standard_catalogue();
//     catalogue.models.push_back(phx::decoder_of("mine", "my own layers", my_layer));
//     return phx::main(argc, argv, catalogue);
//   }
//
// An entry may have options of its own (base/own_options.h). A catalogue is a value: each run has a
// copy, which holds the run's values of these options.
#pragma once

#include <string>
#include <vector>

#include "phalanx/base/named_entry.h"
#include "phalanx/data/dataset.h"
#include "phalanx/models/loss.h"
#include "phalanx/models/model_family.h"
#include "phalanx/optim/schedule.h"
#include "phalanx/optim/update_rule.h"
#include "phalanx/parallel/pipeline/schedule_kind.h"

namespace phx {

struct Catalogue {
  std::vector<ModelFamily> models;               // --model
  std::vector<Dataset> datasets;                 // --dataset, beside those of the data flags
  std::vector<Loss> losses;                      // --loss
  std::vector<LrSchedule> lr_schedules;          // --lr-decay-style
  std::vector<ScheduleKind> pipeline_schedules;  // --pipeline-schedule
  std::vector<UpdateRule> optimizers;            // --optimizer

  // If there is none of this name, throws an error that lists the models.
  const ModelFamily& model(const std::string& name) const {
    return entry_of(models, name, "--model");
  }

  // f(flag without dashes, entries) for each of the lists.
  template <class F>
  void each_list(F&& f) {
    f("model", models);
    f("dataset", datasets);
    f("loss", losses);
    f("lr-decay-style", lr_schedules);
    f("pipeline-schedule", pipeline_schedules);
    f("optimizer", optimizers);
  }
};

Catalogue standard_catalogue();

}  // namespace phx
