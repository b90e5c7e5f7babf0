// Reading values: from the command line, from YAML, from the JSON copy of a run. Written by hand
// rather than on CLI11, because Megatron's conventions differ from its own (a value may look like
// -1, values of refused flags must be consumed, every problem is reported and not just the first).
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/options.h"

namespace phx {
namespace {

bool is_config_flag(const std::string& name) { return name == "config" || name == "yaml-cfg"; }

// As argparse: a dash followed by a number is a value.
bool looks_like_flag(const std::string& token) {
  if (token.size() < 2 || token[0] != '-') return false;
  const auto digit = [&](size_t i) {
    return i < token.size() && std::isdigit(static_cast<unsigned char>(token[i])) != 0;
  };
  return !(digit(1) || (token[1] == '.' && digit(2)));
}

std::string join(std::span<const std::string> words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string kebab(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

struct Token {
  std::string shown;                  // "--lr", as typed
  std::string name;                   // "lr"
  std::vector<std::string> attached;  // what stood behind "="
};

Token split_flag(const std::string& token) {
  const size_t equals = token.find('=');
  Token result;
  result.shown = token.substr(0, equals);
  result.name = result.shown.substr(result.shown.rfind("--", 0) == 0 ? 2 : 1);
  if (equals != std::string::npos) result.attached.push_back(token.substr(equals + 1));
  return result;
}

size_t count_values(std::span<const std::string> args, size_t from, int most) {
  size_t count = 0;
  while (from + count < args.size() && count < static_cast<size_t>(most) &&
         !looks_like_flag(args[from + count])) {
    ++count;
  }
  return count;
}

Arity arity_of(const Option& option, const Option::Switch* meaning) {
  if (meaning != nullptr || option.kind == Option::Kind::toggle) return {0, 0};
  if (option.kind == Option::Kind::list) return {1, Arity::kMany};
  return {1, 1};
}

bool accepts(const CatalogueEntry& entry, std::span<const std::string> values) {
  if (entry.accepts.empty() || values.empty()) return false;
  const std::string list = "|" + entry.accepts + "|";
  return std::all_of(values.begin(), values.end(), [&](const std::string& value) {
    return list.find("|" + value + "|") != std::string::npos;
  });
}

}  // namespace

ParseReport OptionSet::parse(std::span<const std::string> args) {
  ParseReport report;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!looks_like_flag(args[i])) continue;
    const Token token = split_flag(args[i]);
    if (!is_config_flag(token.name)) continue;
    if (token.attached.empty() && count_values(args, i + 1, 1) == 0) continue;  // parse_flags tells
    const std::string file = token.attached.empty() ? args[i + 1] : token.attached[0];
    std::ifstream in(file);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) {
      report.problems.push_back({ProblemKind::file, token.shown,
                                 str_cat(token.shown, " ", file, " cannot be read"),
                                 "check the path and its permissions"});
      continue;
    }
    parse_yaml(text.str(), file, report);
  }
  parse_flags(args, report);
  if (report.help) return report;
  for (const Option& option : options_) {
    if (!option.required || option.given || option.failed) continue;
    report.problems.push_back({ProblemKind::rule, option.flag(),
                               option.flag() + " is required: no default is right", option.help});
  }
  return report;
}

void OptionSet::parse_flags(std::span<const std::string> args, ParseReport& report) {
  for (size_t i = 0; i < args.size();) {
    if (!looks_like_flag(args[i])) {
      report.problems.push_back({ProblemKind::value, "",
                                 str_cat("\"", args[i], "\" belongs to no flag"),
                                 i == 0 ? "" : str_cat("it stands after ", args[i - 1])});
      ++i;
      continue;
    }
    const Token token = split_flag(args[i++]);
    if (token.name == "help" || token.shown == "-h") {
      report.help = true;
      continue;
    }
    const Option::Switch* meaning = nullptr;
    Option* option = lookup(token.name, &meaning);
    const CatalogueEntry* entry = find_catalogued(token.name);
    Arity arity;  // --config FILE, unless it is one of the others
    if (option != nullptr) arity = arity_of(*option, meaning);
    if (entry != nullptr) arity = entry->arity;
    const bool known = option != nullptr || entry != nullptr || is_config_flag(token.name);
    if (!known) {
      report.problems.push_back(unknown(token.shown, token.name));
      arity = {0, Arity::kMany};  // what follows is not worth a second complaint
    }

    std::vector<std::string> values = token.attached;
    if (values.empty()) {
      const size_t count = count_values(args, i, arity.most);
      values.assign(args.begin() + static_cast<std::ptrdiff_t>(i),
                    args.begin() + static_cast<std::ptrdiff_t>(i + count));
      i += count;
    }
    if (static_cast<int>(values.size()) < arity.least) {
      if (option != nullptr) option->failed = true;
      report.problems.push_back({ProblemKind::value, token.shown,
                                 str_cat(token.shown, " needs a value"),
                                 option != nullptr ? option->help : ""});
    } else if (option != nullptr) {
      if (values.empty()) values = {"true"};  // a switch
      apply(*option, meaning, values, token.shown, report);
    } else if (entry != nullptr) {
      take_catalogued(*entry, values, report);
    }
  }
}

// A switch may carry a value of its own: --swiglu=false, or `disable-bias-linear: true` in YAML.
void OptionSet::apply(Option& option, const Option::Switch* meaning,
                      std::span<const std::string> values, const std::string& shown,
                      ParseReport& report) {
  if (meaning == nullptr) {
    set(option, values, shown, report);
    return;
  }
  try {
    const bool on = parse_bool(join(values, " "));
    if (!on && option.kind != Option::Kind::toggle) return;
    set(option, std::vector<std::string>{on ? meaning->value : "true"}, shown, report);
  } catch (const Error& error) {
    option.failed = true;
    report.problems.push_back({ProblemKind::value, option.flag(),
                               str_cat(shown, " ", join(values, " "), " ", error.what()),
                               "a switch is true or false"});
  }
}

void OptionSet::set(Option& option, std::span<const std::string> values, const std::string& shown,
                    ParseReport& report) {
  const auto problem = [&](ProblemKind kind, const std::string& text, const std::string& hint) {
    option.failed = true;
    report.problems.push_back({kind, option.flag(), str_cat(shown, " ", text), hint});
  };
  bool good = true;
  for (const std::string& value : values) {
    const auto refused = std::find_if(option.refused.begin(), option.refused.end(),
                                      [&](const auto& choice) { return choice.first == value; });
    if (refused != option.refused.end()) {
      problem(ProblemKind::refused, str_cat(value, ": ", refused->second),
              option.choices.empty() ? "" : str_cat("use one of ", join(option.choices, ", ")));
      good = false;
    } else if (!option.choices.empty() && std::find(option.choices.begin(), option.choices.end(),
                                                    value) == option.choices.end()) {
      const std::string near = nearest(value, option.choices);
      problem(ProblemKind::value, str_cat(value, " is not one of ", join(option.choices, ", ")),
              near.empty() ? "" : str_cat("did you mean ", near, "?"));
      good = false;
    }
  }
  if (!good) return;
  try {
    option.assign(values);
    option.given = true;
    option.failed = false;
  } catch (const Error& error) {
    problem(ProblemKind::value, str_cat(join(values, " "), " ", error.what()), option.help);
  }
}

void OptionSet::take_catalogued(const CatalogueEntry& entry, std::span<const std::string> values,
                                ParseReport& report) {
  seen_.push_back(entry.name);
  const std::string flag = "--" + entry.name;
  const bool refused = entry.kind == CatalogueEntry::Class::refused;
  if (!refused) {
    report.implied.emplace_back(flag, entry.reason);
  } else if (accepts(entry, values)) {
    report.implied.emplace_back(str_cat(flag, " ", join(values, " ")), "this is so anyway");
  } else {
    std::string hint = entry.hint;
    if (hint.empty() && !entry.accepts.empty()) {
      std::string list = entry.accepts;
      for (size_t at = list.find('|'); at != std::string::npos; at = list.find('|', at)) {
        list.replace(at, 1, " or ");
      }
      hint = str_cat("leave it out, or use ", flag, " ", list);
    }
    report.problems.push_back({ProblemKind::refused, flag, entry.reason, hint});
  }
}

Problem OptionSet::unknown(const std::string& shown, const std::string& bare) const {
  std::vector<std::string> names = {"config", "help", "yaml-cfg"};
  for (const auto& [name, spelling] : spellings_) names.push_back(name);
  const std::string near = nearest(bare, names);
  return {ProblemKind::unknown, shown, str_cat(shown, " is no flag of Phalanx or Megatron"),
          near.empty() ? "--help lists the flags" : str_cat("did you mean --", near, "?")};
}

// Keys are option names, kebab-case or snake_case; a map below the top is a section whose name is
// only for the reader.
static void flatten(const YAML::Node& node, std::vector<std::pair<std::string, YAML::Node>>& out) {
  for (const auto& entry : node) {
    if (entry.second.IsMap()) {
      flatten(entry.second, out);
    } else {
      out.emplace_back(entry.first.as<std::string>(), entry.second);
    }
  }
}

void OptionSet::parse_yaml(const std::string& yaml_text, const std::string& file_name,
                           ParseReport& report) {
  std::vector<std::pair<std::string, YAML::Node>> entries;
  try {
    const YAML::Node root = YAML::Load(yaml_text);
    if (root.IsNull()) return;
    PHX_CHECK(root.IsMap(), "the top level should be a map of option names to values");
    flatten(root, entries);
  } catch (const std::exception& error) {
    report.problems.push_back({ProblemKind::file, file_name, str_cat(file_name, ": ", error.what()),
                               "an entry reads `hidden-size: 1024`"});
    return;
  }
  for (const auto& [key, node] : entries) {
    if (node.IsNull()) continue;  // unset, as Megatron's own files write it
    const std::string name = kebab(key);
    std::vector<std::string> values;
    if (node.IsSequence()) {
      for (const auto& item : node) values.push_back(item.as<std::string>(""));
    } else {
      values.push_back(node.as<std::string>());
    }
    const std::string shown = str_cat(file_name, ": ", key);
    const Option::Switch* meaning = nullptr;
    Option* option = lookup(name, &meaning);
    if (option != nullptr) {
      if (option->kind != Option::Kind::list && values.size() != 1) {
        values = {join(values, ",")};  // window-size: [127, 0]
      }
      apply(*option, meaning, values, shown, report);
    } else if (const CatalogueEntry* entry = find_catalogued(name)) {
      const bool off = entry->arity.most == 0 && values.size() == 1 && values[0] == "false";
      if (!off) take_catalogued(*entry, values, report);
    } else {
      report.problems.push_back(unknown(shown, name));
    }
  }
}

void OptionSet::load_json(const nlohmann::json& values, ParseReport& report) {
  for (const auto& [key, value] : values.items()) {
    const Option::Switch* meaning = nullptr;
    Option* option = lookup(kebab(key), &meaning);
    if (option == nullptr) {
      report.problems.push_back(unknown(key, kebab(key)));
      continue;
    }
    if (value.is_null()) continue;
    std::vector<std::string> texts;
    if (value.is_array()) {
      for (const auto& item : value) texts.push_back(value_text(item));
      if (texts.empty()) continue;
    } else {
      texts.push_back(value_text(value));
    }
    if (value.is_string() && texts[0].empty()) continue;
    set(*option, texts, key, report);
  }
}

}  // namespace phx
