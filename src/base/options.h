// The one registry of options. A config struct declares its fields once (base/option_traits.h);
// from that list come flags, YAML keys, --help, the resolved table, the JSON copy kept beside a
// run, and the error texts. Every problem is collected, none stops the reading: a user sees all at
// once.
//
//   OptionSet options;
//   options.add("Optimizer", config.optim);
//   ParseReport report = options.parse(args);   // fills config.optim
//   options.check(optimizer_rules(), report);   // rules between fields
//
// The set keeps pointers to the members it was given, so it must not outlive the configs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/base/option.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/problem.h"

namespace phx {

// How many values stand after a flag.
struct Arity {
  int least = 1, most = 1;  // most = kMany: up to the next flag
  static constexpr int kMany = 1 << 30;
};

// A Megatron flag that no config field stands for. Implied: always so here, accepted and named at
// start. Refused: an error with the reason. A value in `accepts` (separated by '|') turns a refused
// flag into an implied one, because it asks for what holds anyway.
struct CatalogueEntry {
  enum class Class { implied, refused };
  std::string name;
  Class kind = Class::refused;
  Arity arity = {};
  std::string reason;
  std::string hint = {};
  std::string accepts = {};
};

struct ParseReport {
  Problems problems;
  std::vector<std::pair<std::string, std::string>> implied;  // flag, why
  bool help = false;

  bool ok() const { return problems.empty(); }
};

class OptionSet;

// A rule between fields, as data: what it says, and what it finds.
struct Rule {
  std::string text;
  std::function<void(const OptionSet&, Problems&)> check;
};

class OptionSet {
 public:
  // Registers every field of `config` under the heading `group`.
  template <class Config>
  void add(const std::string& group, Config& config) {
    config.each(FieldBinder([this](Option option) { add(std::move(option)); }, group));
  }
  void add(Option option);
  void add(std::span<const CatalogueEntry> catalogue);
  // The values that the text option `name` may have, where only the program knows them: names of a
  // catalogue's entries. One of them is no longer refused.
  void set_choices(const std::string& name, std::vector<std::string> choices);

  // Reads a config file first (--config FILE or --yaml-cfg FILE), then the flags, which win. As
  // with argparse the last of a repeated flag counts, abbreviations are not taken, and a token such
  // as -1 is a value. Also checks required fields.
  ParseReport parse(std::span<const std::string> args);
  void parse_yaml(const std::string& yaml_text, const std::string& file_name, ParseReport& report);

  void check(std::span<const Rule> rules, ParseReport& report) const;

  const std::vector<Option>& all() const { return options_; }
  const std::vector<CatalogueEntry>& catalogue() const { return catalogue_; }
  const Option& at(const std::string& name) const;
  const Option* find(const std::string& spelling) const;  // by any spelling, without dashes
  const CatalogueEntry* find_catalogued(const std::string& spelling) const;
  bool seen(const std::string& catalogued) const;  // was this catalogued flag on the command line?

  // "Active": a switch away from its default, an optional or a text or a list that holds something,
  // a number or choice that was given.
  bool active(const std::string& name) const;
  // None when it is no number, was not taken, or is required and missing.
  std::optional<double> number(const std::string& name) const;

  // As a user would write it; "none" where an optional is unset.
  std::string text(const std::string& name) const;

  nlohmann::json json() const;  // {"hidden_size": 4096, ..}: Megatron's names
  void load_json(const nlohmann::json& values, ParseReport& report);  // what json() wrote
  std::string help(const std::string& usage, const std::string& example) const;
  std::string table() const;  // "name ....... value", alphabetical

 private:
  void parse_flags(std::span<const std::string> args, ParseReport& report);
  void apply(Option& option, const Option::Switch* meaning, std::span<const std::string> values,
             const std::string& shown, ParseReport& report);
  void set(Option& option, std::span<const std::string> values, const std::string& shown,
           ParseReport& report);
  void take_yaml(const std::string& name, const std::string& shown, std::vector<std::string> values,
                 ParseReport& report);
  void take_catalogued(const CatalogueEntry& entry, std::span<const std::string> values,
                       ParseReport& report);
  Problem unknown(const std::string& shown, const std::string& bare) const;
  Option* lookup(const std::string& spelling, const Option::Switch** meaning);

  std::vector<Option> options_;
  std::vector<CatalogueEntry> catalogue_;
  struct Spelling {
    int option = -1, catalogued = -1, meaning = -1;  // meaning: index into Option::switches
  };
  std::map<std::string, Spelling> spellings_;
  std::vector<std::string> seen_;
};

// One line naming the implied flags; empty when there are none.
std::string format_implied(const ParseReport& report);
std::string value_text(const nlohmann::json& value);  // as a user would write it
std::string kebab_case(std::string key);              // hidden_size -> hidden-size
// The nearest of `names` by edit distance; empty when more than about a third of the word differs.
std::string nearest(const std::string& word, std::span<const std::string> names);

}  // namespace phx
