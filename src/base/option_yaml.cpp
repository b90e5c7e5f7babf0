// Reading config files. Keys are option names, in kebab-case or snake_case; a map is a section
// whose name is only for the reader, so the same option may not stand in two of them.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

struct Entry {
  std::string key;
  YAML::Node node;
};

// As in the file, on one line.
std::string node_text(const YAML::Node& node) {
  if (node.IsNull()) return "null";
  if (node.IsScalar()) return node.Scalar();
  YAML::Emitter out;
  out << YAML::Flow << node;
  return out.c_str();
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Problem yaml_problem(const std::string& shown, const std::string& text, const std::string& hint) {
  return {ProblemKind::value, shown, str_cat(shown, " ", text), hint};
}

// Is this a switch that is turned off?
bool says_off(const std::vector<std::string>& values) {
  try {
    return values.size() == 1 && !parse_bool(values[0]);
  } catch (const Error&) {
    return false;
  }
}

bool holds_only_scalars(const YAML::Node& list) {
  return std::all_of(list.begin(), list.end(),
                     [](const YAML::Node& item) { return item.IsScalar(); });
}

}  // namespace

std::string kebab_case(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

void OptionSet::parse_yaml(const std::string& yaml_text, const std::string& file_name,
                           ParseReport& report) {
  std::vector<Entry> entries;
  const auto is_group = [&](const std::string& name) {  // `optimizer:` is an option and a heading
    return std::any_of(options_.begin(), options_.end(),
                       [&](const Option& option) { return lower(option.group) == name; });
  };
  const auto flatten = [&](const auto& self, const YAML::Node& map) -> void {
    for (const auto& item : map) {
      const std::string key = item.first.as<std::string>();
      const std::string name = kebab_case(key);
      if (!item.second.IsMap()) {
        entries.push_back({key, item.second});
      } else if ((find(name) != nullptr || find_catalogued(name) != nullptr) && !is_group(name)) {
        report.problems.push_back(yaml_problem(str_cat(file_name, ": ", key),
                                               "is an option, so it has a value and not a map",
                                               "a section needs a name that is no option's"));
      } else {
        self(self, item.second);
      }
    }
  };
  try {
    const YAML::Node root = YAML::Load(yaml_text);
    if (root.IsNull()) return;
    PHX_CHECK(root.IsMap(), "the top level should be a map of option names to values");
    flatten(flatten, root);
  } catch (const std::exception& error) {
    std::string what = error.what();
    if (constexpr std::string_view mark = "yaml-cpp: "; what.starts_with(mark))
      what.erase(0, mark.size());
    report.problems.push_back({ProblemKind::file, file_name, str_cat(file_name, ": ", what),
                               "an entry reads `hidden-size: 1024`"});
    return;
  }

  std::map<std::string, std::string> taken;  // option, value
  for (const auto& [key, node] : entries) {
    const std::string name = kebab_case(key), shown = str_cat(file_name, ": ", key);
    const Option::Switch* meaning = nullptr;
    Option* option = lookup(name, &meaning);
    const std::string identity = option != nullptr && meaning == nullptr ? option->name : name;
    const auto [before, fresh] = taken.emplace(identity, node_text(node));
    if (!fresh) {
      report.problems.push_back(
          yaml_problem(shown, str_cat("is given twice: ", before->second, " and ", node_text(node)),
                       "keep one of them; sections do not tell options apart"));
      continue;
    }
    if (node.IsNull()) continue;  // unset, as Megatron's own files write it
    if (name == "config" || name == "yaml-cfg") {
      report.problems.push_back(
          yaml_problem(shown, str_cat(node_text(node), ": a config file cannot include another"),
                       "give --config twice on the command line; the later file wins"));
      continue;
    }
    if (node.IsSequence() && !holds_only_scalars(node)) {
      if (option != nullptr) option->failed = true;
      report.problems.push_back(
          yaml_problem(shown, str_cat(node_text(node), " holds more than plain values"),
                       "a list reads `[1, 2]`, with numbers or words in it"));
      continue;
    }
    take_yaml(name, shown,
              node.IsSequence() ? node.as<std::vector<std::string>>()
                                : std::vector<std::string>{node.as<std::string>()},
              report);
  }
}

void OptionSet::take_yaml(const std::string& name, const std::string& shown,
                          std::vector<std::string> values, ParseReport& report) {
  const Option::Switch* meaning = nullptr;
  Option* option = lookup(name, &meaning);
  if (option != nullptr) {
    if (option->kind != Option::Kind::list && values.size() != 1) {  // window-size: [127, 0]
      std::string joined;
      for (const std::string& value : values) joined += (joined.empty() ? "" : ",") + value;
      values = {joined};
    }
    apply(*option, meaning, values, shown, report);
  } else if (const CatalogueEntry* entry = find_catalogued(name)) {
    if (!(entry->arity.most == 0 && says_off(values))) take_catalogued(*entry, values, report);
  } else {
    report.problems.push_back(unknown(shown, name));
  }
}

}  // namespace phx
