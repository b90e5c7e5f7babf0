// Options that an entry of a catalogue (a model, a dataset, a learning-rate schedule, ..) brings
// with it. The entry declares a config struct as any room does; its flags appear in --help, are
// parsed, and are kept in checkpoints. The struct's type is known to the entry alone.
//
//   struct MyOptions {
//     double strength = 0.5;
//     template <class Field>
//     void each(Field&& field) {
//       field("my-strength", strength, "how strong it is", InRange{0, 1});
//     }
//   };
//   entry.options = OwnOptions::of<MyOptions>();
//   ..
//   const double strength = options.get<MyOptions>().strength;  // inside of the entry's function
#pragma once

#include <any>
#include <string>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

namespace phx {

// A value: a copy has its own numbers.
class OwnOptions {
 public:
  OwnOptions() = default;  // an entry without options

  template <class Config>
  static OwnOptions of(Config defaults = {}) {
    OwnOptions own;
    own.values_ = std::move(defaults);
    own.add_ = [](std::any& values, OptionSet& set, const std::string& group) {
      set.add(group, *std::any_cast<Config>(&values));
    };
    return own;
  }

  bool empty() const { return !values_.has_value(); }

  template <class Config>
  const Config& get() const {
    const Config* config = std::any_cast<Config>(&values_);
    PHX_CHECK(config != nullptr, "an entry of the catalogue asks for options that it did not ",
              "declare\n  hint: set its `options` to OwnOptions::of<..>()");
    return *config;
  }

  // Registers the flags under the heading `group`. The set must not outlive this object.
  void add_to(OptionSet& set, const std::string& group) {
    if (!empty()) add_(values_, set, group);
  }

 private:
  std::any values_;
  void (*add_)(std::any& values, OptionSet& set, const std::string& group) = nullptr;
};

}  // namespace phx
