// What the registry prints: help, the resolved table, problems.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kHelpIndent = 36;
constexpr size_t kTableWidth =
    48;  // Megatron's, so that eyes find the values where they used to be

std::string metavar(const Option& option) {
  if (option.kind == Option::Kind::toggle) return "";
  std::string word = option.type;
  if (!option.choices.empty() && option.kind == Option::Kind::single) {
    word = "{";
    for (const std::string& choice : option.choices) {
      word += (word.size() == 1 ? "" : ",") + choice;
    }
    word += "}";
  }
  return " " + word + (option.kind == Option::Kind::list ? " ..." : "");
}

std::string wrapped(const std::string& text, size_t indent, size_t first_column) {
  std::string out;
  size_t column = first_column;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find(' ', at);
    if (end == std::string::npos) end = text.size();
    const std::string word = text.substr(at, end - at);
    if (column > indent && column + 1 + word.size() > kColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
    at = end + 1;
  }
  return out;
}

std::string help_entry(const Option& option) {
  std::string head = "  " + option.flag() + metavar(option);
  std::string tail = option.help;
  if (option.required) {
    tail += " (required)";
  } else if (option.kind != Option::Kind::toggle && !option.default_text.empty() &&
             option.default_text != "none") {
    tail += " (default " + option.default_text + ")";
  }
  for (const std::string& alias : option.aliases) tail += "; also --" + alias;
  for (const Option::Switch& other : option.switches) {
    if ("--" + other.flag == option.flag()) continue;
    tail += "; also --" + other.flag;
    if (option.kind != Option::Kind::toggle) tail += " for " + other.value;
  }
  if (option.own) tail += " [own]";
  if (head.size() + 2 > kHelpIndent) {
    head += "\n" + std::string(kHelpIndent, ' ');
  } else {
    head.resize(kHelpIndent, ' ');
  }
  return head + wrapped(tail, kHelpIndent, kHelpIndent) + "\n";
}

// Damerau's distance, restricted: swaps of neighbours count as one.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(const std::string& word, std::span<const std::string> names) {
  std::string best;
  size_t best_distance = (word.size() + 1) / 3 + 1;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string value_text(const nlohmann::json& value) {
  if (value.is_null()) return "none";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const auto& item : value) text += (text.empty() ? "" : " ") + value_text(item);
    return text;
  }
  std::string text = json_text(value);
  if (value.is_number_float() && text.size() > 2 && text.ends_with(".0")) {
    text.resize(text.size() - 2);
  }
  return text;
}

std::string OptionSet::help(const std::string& usage, const std::string& example) const {
  std::string text = "usage: " + usage + "\n\nexample:\n" + example + "\n";
  std::string group;
  for (const Option& option : options_) {
    if (option.group != group) text += "\n" + option.group + "\n";
    group = option.group;
    text += help_entry(option);
  }
  text += "\nConfig file\n";
  text += "  --config FILE, --yaml-cfg FILE    ";
  text += "YAML with these names as keys; flags on the command line win\n";
  if (!catalogue_.empty()) {
    text +=
        "\n[own]: Phalanx's own; every other flag is Megatron's. docs/flags.md lists also the "
        "flags\n";
    text += "that are taken without effect, and those that are refused, each with the reason.\n";
  }
  return text;
}

std::string OptionSet::table() const {
  std::vector<std::string> lines;
  const nlohmann::json values = json();  // items() refers to it
  for (const auto& [key, value] : values.items()) {
    const size_t dots = key.size() + 1 < kTableWidth ? kTableWidth - key.size() - 1 : 3;
    const std::string text = value_text(value);
    lines.push_back("  " + key + " " + std::string(dots, '.') + " " +
                    (text.empty() ? "none" : text) + "\n");
  }
  std::sort(lines.begin(), lines.end());
  return std::accumulate(lines.begin(), lines.end(), std::string());
}

std::string format_problems(const Problems& problems) {
  std::string text;
  std::vector<bool> done(problems.size(), false);
  for (size_t i = 0; i < problems.size(); ++i) {
    if (done[i]) continue;
    const Problem& problem = problems[i];
    std::string line = problem.text;
    // A catalogued refusal's text is the bare reason: flags that share it are listed together.
    const bool bare = problem.kind == ProblemKind::refused && !line.starts_with(problem.flag);
    if (bare) {
      std::string flags = problem.flag;
      for (size_t j = i + 1; j < problems.size(); ++j) {
        if (problems[j].text != problem.text || problems[j].hint != problem.hint) continue;
        done[j] = true;
        if (problems[j].flag != problem.flag) flags += ", " + problems[j].flag;
      }
      line = flags + ": " + line;
    } else {  // two rules may find the same thing
      for (size_t j = i + 1; j < problems.size(); ++j)
        if (problems[j].text == problem.text) done[j] = true;
    }
    text += "error: " + line + "\n";
    if (!problem.hint.empty()) text += "  hint: " + problem.hint + "\n";
  }
  return text;
}

std::string format_implied(const ParseReport& report) {
  if (report.implied.empty()) return "";
  std::string text = "taken without effect (docs/flags.md says why):";
  for (size_t i = 0; i < report.implied.size(); ++i) {
    text += (i == 0 ? " " : ", ") + report.implied[i].first;
  }
  return text + "\n";
}

}  // namespace phx
