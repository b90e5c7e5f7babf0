// A config with a field of every kind, and a catalogue of flags that no field stands for: what the
// tests of options parse.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/frequency_pattern.h"
#include "phalanx/base/options.h"

namespace phx {

using Texts = std::vector<std::string>;

enum class Form { round, square };
constexpr auto option_names(Form) { return std::array{"round", "square"}; }

struct ThingsConfig {
  int64_t width = 0;
  double rate = 0.5;
  bool fast = false;
  bool checks = true;
  bool add_bias = true;
  std::string name = "plain";
  Form shape = Form::round;
  std::optional<double> limit;
  std::vector<int64_t> sizes;
  std::vector<std::string> modules;
  std::optional<FrequencyPattern> freq;

  template <class Field>
  void each(Field&& field) {
    field("width", width, "how wide", Positive{}, Required{}, Alias{"breadth"});
    field("rate", rate, "how fast it goes", InRange{0.0, 1.0});
    field("fast", fast, "be fast");
    field("checks", checks, "no checks");
    field("add-bias", add_bias, "no bias", OffSwitch{"disable-bias"});
    field("name", name, "what it is called");
    field("shape", shape, "its form", Means{"use-squares", "square"},
          Refuses{{{"spiral", "spirals are not in this build"}}});
    field("limit", limit, "upper limit", NotNegative{}, DefaultIs{"no limit"}, Own{});
    field("sizes", sizes, "several sizes", Positive{});
    field("modules", modules, "several modules", OneOf{{"mlp", "attention"}});
    field("freq", freq, "which layers");
  }
};

inline const CatalogueEntry kCatalogue[] = {
    {"old-way", CatalogueEntry::Class::implied, {0, 0}, "there is one way"},
    {"old-size", CatalogueEntry::Class::implied, {1, 1}, "there is one size"},
    {"colour", CatalogueEntry::Class::refused, {1, 1}, "all is grey", "", "grey|gray"},
    {"ink", CatalogueEntry::Class::refused, {0, Arity::kMany}, "all is grey", "use a pencil", ""},
};

struct Parsed {
  ThingsConfig config;
  ParseReport report;
};

inline Parsed parse(const Texts& args) {
  Parsed parsed;
  OptionSet set;
  set.add("Things", parsed.config);
  set.add(kCatalogue);
  parsed.report = set.parse(args);
  return parsed;
}

inline Texts texts(const ParseReport& report) {
  Texts result;
  for (const Problem& problem : report.problems) result.push_back(problem.text);
  return result;
}

}  // namespace phx
