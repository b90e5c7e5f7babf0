// Reading values: from the command line and from the JSON copy of a run (option_yaml.cpp reads
// config files). Written by hand rather than on a library, because Megatron's conventions are its
// own: a value may look like -1, values of refused flags must be consumed, every problem is
// reported and not just the first.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

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

struct Token {
  std::string shown;                  // "--lr", as typed
  std::string name;                   // "lr"
  std::vector<std::string> attached;  // what stood behind "="
  bool one_dash = false;              // "-lr": told, never taken
};

Token split_flag(const std::string& token) {
  const size_t equals = token.find('=');
  Token result;
  result.shown = token.substr(0, equals);
  result.one_dash = !result.shown.starts_with("--");
  result.name = result.shown.substr(result.one_dash ? 1 : 2);
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

// "1000" for 1e3 where an integer is asked for; empty where no integer is meant.
std::string as_integer(const std::string& text) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: above it doubles skip integers
  try {
    const double value = parse_number(text);
    if (value != std::floor(value) || std::abs(value) > kExact) return "";
    return std::to_string(static_cast<int64_t>(value));
  } catch (const Error&) {
    return "";
  }
}

// The way out of a value that was not taken: the integer that was meant, or what the option is.
std::string value_hint(const Option& option, std::span<const std::string> values) {
  if (option.type != OptionValue<int64_t>::type()) return option.help;
  std::string text;
  bool rewritten = false;
  for (const std::string& value : values) {
    const std::string integer = as_integer(value);
    if (integer.empty()) return option.help;
    rewritten |= integer != value;
    text += " " + integer;
  }
  return rewritten ? str_cat("an integer is written without a point or exponent:", text)
                   : option.help;
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
    if (token.one_dash || !is_config_flag(token.name)) continue;
    if (token.attached.empty() && count_values(args, i + 1, 1) == 0) continue;  // parse_flags tells
    const std::string file = token.attached.empty() ? args[i + 1] : token.attached[0];
    std::ifstream in(file);
    std::ostringstream text;
    const bool read = in && !std::filesystem::is_directory(file);
    if (read && in.peek() == std::ifstream::traits_type::eof()) {
      report.problems.push_back({ProblemKind::file, token.shown,
                                 str_cat(token.shown, " ", file, " is empty"),
                                 "it should hold lines such as `hidden-size: 1024`"});
      continue;
    }
    if (!read || !(text << in.rdbuf())) {
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
    if (token.one_dash) {
      const bool close = find(token.name) != nullptr || find_catalogued(token.name) != nullptr ||
                         is_config_flag(token.name);
      report.problems.push_back(
          {ProblemKind::unknown, token.shown,
           str_cat(token.shown, " is no flag: flags begin with two dashes"),
           close ? str_cat("did you mean --", token.name, "?") : unknown("", token.name).hint});
      i += count_values(args, i, Arity::kMany);
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
    problem(ProblemKind::value, str_cat(join(values, " "), " ", error.what()),
            value_hint(option, values));
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
  const char* whose =
      catalogue_.empty() ? " is no flag of this command" : " is no flag of Phalanx or Megatron";
  return {ProblemKind::unknown, shown, shown + whose,
          near.empty() ? "--help lists the flags" : str_cat("did you mean --", near, "?")};
}

void OptionSet::load_json(const nlohmann::json& values, ParseReport& report) {
  for (const auto& [key, value] : values.items()) {
    const std::string name = kebab_case(key);
    // Fields of older runs that are catalogued by now: implied, or refused when they had an effect.
    if (find_catalogued(name) != nullptr) continue;
    const Option::Switch* meaning = nullptr;
    Option* option = lookup(name, &meaning);
    if (option == nullptr) {
      report.problems.push_back(unknown(key, name));
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
