#include "phalanx/cli/megatron_catalogue.h"

#include <sstream>

namespace phx {
namespace {

void add(const CatalogueGroup& group, const char* names, Arity arity,
         std::vector<CatalogueEntry>& out) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    CatalogueEntry entry;
    entry.name = word.substr(0, equals);
    entry.kind = group.kind;
    entry.arity = arity;
    entry.reason = group.reason;
    entry.hint = group.hint;
    if (equals != std::string::npos) entry.accepts = word.substr(equals + 1);
    out.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<CatalogueEntry> megatron_catalogue() {
  std::vector<CatalogueEntry> entries;
  for (const auto& groups : {model_catalogue(), rank_catalogue(), run_catalogue(),
                             other_model_catalogue(), other_task_catalogue()}) {
    for (const CatalogueGroup& group : groups) {
      add(group, group.switches, {0, 0}, entries);
      add(group, group.values, {1, 1}, entries);
      add(group, group.lists, {0, Arity::kMany}, entries);
    }
  }
  return entries;
}

}  // namespace phx
