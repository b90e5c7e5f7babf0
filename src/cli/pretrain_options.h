// All options of `phalanx pretrain`: Megatron's flags or a YAML file in, checked configs out.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/base/options.h"
#include "phalanx/data/chat/sft_config.h"
#include "phalanx/data/data_config.h"
#include "phalanx/optim/optimizer_config.h"
#include "phalanx/parallel/parallel_config.h"
#include "phalanx/train/catalogue.h"
#include "phalanx/train/train_config.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct PretrainOptions {
  PretrainOptions() = default;
  explicit PretrainOptions(Catalogue entries) : catalogue(std::move(entries)) {}

  const ModelFamily& family() const { return catalogue.model(choice.model); }

  ModelChoice choice;
  // What the names in the configs mean. Of it the values of the entries' own options are kept
  // beside a run.
  Catalogue catalogue = standard_catalogue();
  TransformerConfig model;
  ParallelConfig parallel;
  TrainConfig train;
  OptimizerConfig optim;
  DataConfig data;
  SftConfig sft;

  // What the JSON copy kept beside a run or in a checkpoint holds: {"hidden_size": 4096, ..}.
  std::string to_json(int indent = -1) const;  // -1: in one line
  // Throws on what it cannot place.
  static PretrainOptions from_json(const std::string& text,
                                   const Catalogue& catalogue = standard_catalogue());
  std::string table() const;  // alphabetical, with dots
};

struct ParseResult {
  PretrainOptions options;  // resolved when report.ok()
  ParseReport report;
  int64_t world = 1;  // ranks that the options were checked for
  std::string note;   // for the log of a run: which average of a masked loss is taken; or empty
};

// Reads and checks everything; reports every problem at once and throws nothing for them. `world`:
// how many ranks there are; without it as many as --local-ranks says, or one copy of the model
// needs.
enum class RanksFrom { launcher, command };  // who gave `world`
ParseResult parse_pretrain(std::span<const std::string> args,
                           std::optional<int64_t> world = std::nullopt,
                           RanksFrom ranks_from = RanksFrom::launcher,
                           const Catalogue& catalogue = standard_catalogue());

// The registry over the given configs and the options of the catalogue's entries, Megatron's other
// flags included; `options` must outlive it.
OptionSet pretrain_option_set(PretrainOptions& options);
// Every rule between fields: those of the rooms and those across them.
std::vector<Rule> pretrain_rules(const PretrainOptions& options);

std::string pretrain_help(const Catalogue& catalogue = standard_catalogue());
std::string flags_markdown();  // the text of docs/flags.md

}  // namespace phx
