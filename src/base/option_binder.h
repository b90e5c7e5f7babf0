// Turns one field of a config struct into an Option. Included by base/options.h; not for others.
#pragma once

#include <limits>
#include <type_traits>
#include <utility>

#include "base/option_traits.h"
#include "base/option_values.h"
#include "base/options.h"

namespace phx {

template <class T>
struct FieldShape {  // a plain value
  using Element = T;
  static constexpr Option::Kind kKind =
      std::is_same_v<T, bool> ? Option::Kind::toggle : Option::Kind::single;
};
template <class T>
struct FieldShape<std::optional<T>> {
  using Element = T;
  static constexpr Option::Kind kKind = Option::Kind::single;
};
template <class T>
struct FieldShape<std::vector<T>> {
  using Element = T;
  static constexpr Option::Kind kKind = Option::Kind::list;
};

template <class T>
nlohmann::json field_json(const T& value) {
  return OptionValue<T>::json(value);
}
template <class T>
nlohmann::json field_json(const std::optional<T>& value) {
  return value ? OptionValue<T>::json(*value) : nlohmann::json();
}
template <class T>
nlohmann::json field_json(const std::vector<T>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const T& value : values) list.push_back(OptionValue<T>::json(value));
  return list;
}

// The rules that a field's traits put on one parsed element. Each throws an Error with a predicate.
void check_range(double value, double low, bool low_allowed, double high, bool high_allowed,
                 const std::string& rule);

template <class Element>
class FieldRules {
 public:
  explicit FieldRules(Option& option) : option_(option) {}

  void apply(const Positive&) { range(0, false, kInfinite, true, "positive"); }
  void apply(const NotNegative&) { range(0, true, kInfinite, true, "0 or more"); }
  void apply(const AtLeast& rule) {
    range(rule.low, true, kInfinite, true, value_text(nlohmann::json(rule.low)) + " or more");
  }
  void apply(const InRange& rule) {
    range(rule.low, true, rule.high, true,
          "between " + value_text(nlohmann::json(rule.low)) + " and " +
              value_text(nlohmann::json(rule.high)));
  }
  void apply(const FractionBelowOne&) { range(0, true, 1, false, "at least 0 and below 1"); }
  void apply(const OneOf& rule) { option_.choices = rule.choices; }
  void apply(const Refuses& rule) { option_.refused = rule.choices; }
  void apply(const Required&) { option_.required = true; }
  void apply(const Alias& alias) { option_.aliases.push_back(alias.name); }
  void apply(const Means& means) { option_.switches.push_back({means.flag, means.value}); }
  void apply(const OffSwitch& off) { option_.switches.push_back({off.flag, "false"}); }
  void apply(const DefaultIs& text) { option_.default_text = text.text; }
  void apply(const Own&) { option_.own = true; }

  using Check = std::function<void(const Element&)>;
  const std::vector<Check>& checks() const { return checks_; }

 private:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  void range(double low, bool low_allowed, double high, bool high_allowed, std::string rule) {
    static_assert(std::is_arithmetic_v<Element>, "a range rule needs a number");
    checks_.push_back([=](const Element& value) {
      check_range(static_cast<double>(value), low, low_allowed, high, high_allowed, rule);
    });
  }

  Option& option_;
  std::vector<Check> checks_;
};

class FieldBinder {
 public:
  FieldBinder(OptionSet& set, std::string group) : set_(set), group_(std::move(group)) {}

  template <class T, class... Traits>
  void operator()(const char* name, T& member, const char* help, const Traits&... traits) {
    using Shape = FieldShape<T>;
    using Element = typename Shape::Element;
    Option option;
    option.name = name;
    option.group = group_;
    option.help = help;
    option.kind = Shape::kKind;
    option.type = OptionValue<Element>::type();
    if constexpr (std::is_enum_v<Element>) option.choices = names_of<Element>();
    if constexpr (std::is_same_v<T, bool>) option.starts_true = member;
    FieldRules<Element> rules(option);
    (rules.apply(traits), ...);
    if (option.default_text.empty()) option.default_text = value_text(field_json(member));

    option.get = [&member] { return field_json(member); };
    option.assign = [&member, checks = rules.checks()](std::span<const std::string> texts) {
      const auto element = [&checks](const std::string& text) {
        Element value = OptionValue<Element>::parse(text);
        for (const auto& check : checks) check(value);
        return value;
      };
      if constexpr (Shape::kKind == Option::Kind::list) {
        T values;
        for (const std::string& text : texts) values.push_back(element(text));
        member = std::move(values);
      } else {
        member = element(texts.front());
      }
    };
    set_.add(std::move(option));
  }

 private:
  OptionSet& set_;
  std::string group_;
};

template <class Config>
void OptionSet::add(const std::string& group, Config& config) {
  config.each(FieldBinder(*this, group));
}

}  // namespace phx
