// The Megatron flags that no config field stands for: implied (always so here: taken, and named at
// start) or refused (with the reason). Written down as groups that share a class and a reason.
//
// Names are separated by spaces; "name=a|b" lists values with which a refused flag is taken anyway,
// because they ask for what holds here. `switches` have no value, `values` one, `lists` one or
// more.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "phalanx/base/options.h"

namespace phx {

struct CatalogueGroup {
  CatalogueEntry::Class kind;
  const char* reason;
  const char* hint = "";
  const char* switches = "";
  const char* values = "";
  const char* lists = "";
};

constexpr CatalogueEntry::Class kImplied = CatalogueEntry::Class::implied;
constexpr CatalogueEntry::Class kRefused = CatalogueEntry::Class::refused;

std::span<const CatalogueGroup> model_catalogue();  // other architectures: MoE, MLA, Mamba, ...
std::span<const CatalogueGroup> other_model_catalogue();  // BERT, T5, vision
std::span<const CatalogueGroup> other_task_catalogue();   // RL, serving, distillation
std::span<const CatalogueGroup> rank_catalogue();  // parallelism, communication, fault tolerance
std::span<const CatalogueGroup> run_catalogue();   // batches, numbers, data, checkpoints, logs

std::vector<CatalogueEntry> megatron_catalogue();  // all of them, one entry a flag

}  // namespace phx
