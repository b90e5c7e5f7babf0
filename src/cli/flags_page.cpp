// docs/flags.md, written from the registry.
#include <algorithm>
#include <map>

#include "phalanx/base/error.h"
#include "phalanx/cli/not_in_this_build.h"
#include "phalanx/cli/pretrain_options.h"

namespace phx {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string type_text(const Option& option) {
  if (option.kind == Option::Kind::toggle) return "switch";
  std::string text = option.type;
  if (!option.choices.empty()) {
    text.clear();
    for (const std::string& choice : option.choices) text += (text.empty() ? "" : ", ") + choice;
  }
  return option.kind == Option::Kind::list ? text + " (one or more)" : text;
}

std::string row(const Option& option) {
  std::string name = str_cat("`", option.flag(), "`");
  for (const std::string& alias : option.aliases) name += str_cat(", `--", alias, "`");
  for (const Option::Switch& other : option.switches) {
    if ("--" + other.flag == option.flag()) continue;
    name += str_cat(", `--", other.flag, "`");
    if (option.kind != Option::Kind::toggle) name += str_cat(" (", other.value, ")");
  }
  const bool toggle = option.kind == Option::Kind::toggle;
  const std::string start =
      toggle ? "off" : (option.required ? "required" : escaped(option.default_text));
  return str_cat("| ", name, " | ", escaped(type_text(option)), " | ", start, " | ",
                 escaped(option.help), option.own ? " *(own)*" : "", " |\n");
}

void add_catalogue(const OptionSet& set, CatalogueEntry::Class kind, std::string& page) {
  std::vector<std::string> reasons;                                      // in the catalogue's order
  std::map<std::string, std::pair<std::string, std::string>> by_reason;  // flags, hint
  for (const CatalogueEntry& entry : set.catalogue()) {
    if (entry.kind != kind) continue;
    if (by_reason.count(entry.reason) == 0) reasons.push_back(entry.reason);
    auto& [flags, hint] = by_reason[entry.reason];
    flags += str_cat(flags.empty() ? "" : ", ", "`--", entry.name, "`");
    if (!entry.accepts.empty()) {
      std::string taken = entry.accepts;
      for (size_t at = taken.find('|'); at != std::string::npos; at = taken.find('|')) {
        taken.replace(at, 1, " or ");
      }
      flags += str_cat(" (other than ", taken, ")");
    }
    hint = entry.hint;
  }
  for (const std::string& reason : reasons) {
    const auto& [flags, hint] = by_reason[reason];
    page += str_cat("- **", reason, "**", hint.empty() ? "" : str_cat(" (", hint, ")"), ": ", flags,
                    "\n");
  }
}

void add_lacking(std::string& page) {
  const auto list = lacking_options();
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string reason = list[i].reason;
    const bool first = i == 0 || reason != list[i - 1].reason;
    const bool last = i + 1 == list.size() || reason != list[i + 1].reason;
    page += first ? str_cat("- **", reason, "** (", list[i].hint, "): ") : std::string(", ");
    page += str_cat("`", list[i].flag, "`", last ? "\n" : "");
  }
}

}  // namespace

std::string flags_markdown() {
  PretrainOptions defaults;
  const OptionSet set = pretrain_option_set(defaults);
  std::string page =
      "# Flags of `phalanx pretrain`\n\n"
      "Written by `phalanx flags > docs/flags.md`; a test keeps this page equal to the program.\n\n"
      "Names, defaults and conventions are Megatron-LM's; *(own)* marks what Megatron has no flag\n"
      "for. `--name value` and `--name=value` are the same, names are never abbreviated, the last "
      "of\n"
      "a repeated flag counts. A switch may be given a value: `--swiglu=false`. `--config FILE`\n"
      "(or `--yaml-cfg FILE`) reads a YAML file with the same names as keys, in kebab-case or\n"
      "snake_case; flags on the command line win. A flag of Megatron is done, implied or "
      "refused.\n";
  std::string group;
  for (const Option& option : set.all()) {
    if (option.group != group) {
      page +=
          "\n## " + option.group + "\n\n| Flag | Value | Default | Meaning |\n|---|---|---|---|\n";
    }
    group = option.group;
    page += row(option);
  }
  page += "\n## Rules between flags\n\nAll violated rules are reported at once.\n\n";
  for (const Rule& rule : pretrain_rules(PretrainOptions())) page += "- " + rule.text + "\n";
  page +=
      "\n## Known, but not run yet\n\n`--check-args` takes these with a note; a run is refused, "
      "with "
      "exit code 2.\n\n";
  add_lacking(page);
  page += "\n## Implied: taken without effect\n\nA run names them in one line at its start.\n\n";
  add_catalogue(set, CatalogueEntry::Class::implied, page);
  page += "\n## Refused, and why\n\n";
  add_catalogue(set, CatalogueEntry::Class::refused, page);
  return page;
}

}  // namespace phx
