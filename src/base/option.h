// One field of a config, its type erased: what OptionSet keeps a flag, a YAML key and a help text
// by.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace phx {

// Made by OptionSet::add.
struct Option {
  enum class Kind { toggle, single, list };
  struct Switch {
    std::string flag, value;
  };

  std::string name, group, help, type, default_text;
  Kind kind = Kind::single;
  bool starts_true = false;  // a toggle that only its off-switches can change
  bool required = false, own = false;
  std::vector<std::string> choices, aliases;
  std::vector<Switch> switches;  // flags without a value, and what they set
  std::vector<std::pair<std::string, std::string>> refused;  // choices: value, reason

  bool given = false;   // by the command line or a file
  bool failed = false;  // given, with a value that was not taken
  std::function<void(std::span<const std::string>)> assign;  // throws Error: a predicate, see above
  std::function<void(nlohmann::json& out)> write;            // the field's value as JSON

  nlohmann::json get() const;
  std::string flag() const;  // the spelling to show: "--name", or the off-switch
};

}  // namespace phx
