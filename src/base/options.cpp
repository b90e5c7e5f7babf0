#include "phalanx/base/options.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"

namespace phx {

nlohmann::json Option::get() const {
  nlohmann::json value;
  write(value);
  return value;
}

std::string Option::flag() const {
  if (kind == Kind::toggle && starts_true && !switches.empty()) return "--" + switches.front().flag;
  return "--" + name;
}

void OptionSet::add(Option option) {
  if (option.default_text.empty()) option.default_text = value_text(option.get());
  const int index = static_cast<int>(options_.size());
  if (option.kind == Option::Kind::toggle && option.starts_true && option.switches.empty()) {
    option.switches = {{"no-" + option.name, "false"}, {"disable-" + option.name, "false"}};
  }
  const auto spell = [&](const std::string& word, int meaning) {
    const bool fresh = spellings_.emplace(word, Spelling{index, -1, meaning}).second;
    PHX_ASSERT(fresh, "the option --", word, " is declared twice");
  };
  spell(option.name, -1);
  for (const std::string& alias : option.aliases) spell(alias, -1);
  for (size_t i = 0; i < option.switches.size(); ++i) {
    spell(option.switches[i].flag, static_cast<int>(i));
  }
  options_.push_back(std::move(option));
}

void OptionSet::add(std::span<const CatalogueEntry> catalogue) {
  for (const CatalogueEntry& entry : catalogue) {
    const int index = static_cast<int>(catalogue_.size());
    const bool fresh = spellings_.emplace(entry.name, Spelling{-1, index, -1}).second;
    PHX_ASSERT(fresh, "the flag --", entry.name, " is declared twice");
    catalogue_.push_back(entry);
  }
}

void OptionSet::set_choices(const std::string& name, std::vector<std::string> choices) {
  const auto found = spellings_.find(name);
  PHX_ASSERT(found != spellings_.end() && found->second.option >= 0, "no option is called --",
             name);
  Option& option = options_[static_cast<size_t>(found->second.option)];
  std::erase_if(option.refused, [&](const auto& refused) {
    return std::ranges::find(choices, refused.first) != choices.end();
  });
  option.type = "choice";
  option.choices = std::move(choices);
}

const Option* OptionSet::find(const std::string& spelling) const {
  const auto found = spellings_.find(spelling);
  if (found == spellings_.end() || found->second.option < 0) return nullptr;
  return &options_[static_cast<size_t>(found->second.option)];
}

const CatalogueEntry* OptionSet::find_catalogued(const std::string& spelling) const {
  const auto found = spellings_.find(spelling);
  if (found == spellings_.end() || found->second.catalogued < 0) return nullptr;
  return &catalogue_[static_cast<size_t>(found->second.catalogued)];
}

Option* OptionSet::lookup(const std::string& spelling, const Option::Switch** meaning) {
  const auto found = spellings_.find(spelling);
  *meaning = nullptr;
  if (found == spellings_.end() || found->second.option < 0) return nullptr;
  Option& option = options_[static_cast<size_t>(found->second.option)];
  if (found->second.meaning >= 0) {
    *meaning = &option.switches[static_cast<size_t>(found->second.meaning)];
  }
  return &option;
}

const Option& OptionSet::at(const std::string& name) const {
  const Option* option = find(name);
  PHX_ASSERT(option != nullptr, "no option is called --", name);
  return *option;
}

bool OptionSet::seen(const std::string& catalogued) const {
  PHX_ASSERT(find_catalogued(catalogued) != nullptr, "no catalogued flag is called --", catalogued);
  return std::find(seen_.begin(), seen_.end(), catalogued) != seen_.end();
}

bool OptionSet::active(const std::string& name) const {
  const Option& option = at(name);
  if (option.failed) return true;
  const nlohmann::json value = option.get();
  if (option.kind == Option::Kind::toggle) return value.get<bool>() != option.starts_true;
  if (value.is_null()) return false;
  if (value.is_array() || value.is_string()) {
    const bool empty = value.is_array() ? value.empty() : value.get<std::string>().empty();
    return !empty && (option.choices.empty() || option.given);
  }
  return option.given;
}

std::optional<double> OptionSet::number(const std::string& name) const {
  const Option& option = at(name);
  if (option.failed || (option.required && !option.given)) return std::nullopt;
  const nlohmann::json value = option.get();
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::string OptionSet::text(const std::string& name) const { return value_text(at(name).get()); }

void OptionSet::check(std::span<const Rule> rules, ParseReport& report) const {
  for (const Rule& rule : rules) rule.check(*this, report.problems);
}

nlohmann::json OptionSet::json() const {
  nlohmann::json values = nlohmann::json::object();
  for (const Option& option : options_) {
    std::string key = option.name;
    std::replace(key.begin(), key.end(), '-', '_');
    values[key] = option.get();
  }
  return values;
}

}  // namespace phx
