// Turns the fields of a config struct into Options. For OptionSet::add; not for others.
// Compiled once a type of field in every source that binds a config, so what needs no template is
// in option_binder.cpp.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "phalanx/base/option.h"
#include "phalanx/base/option_traits.h"
#include "phalanx/base/option_values.h"

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
void write_field(nlohmann::json& out, const T& value) {
  OptionValue<T>::write(out, value);
}
template <class T>
void write_field(nlohmann::json& out, const std::optional<T>& value) {
  value ? OptionValue<T>::write(out, *value) : write_null(out);
}
template <class T>
void write_field(nlohmann::json& out, const std::vector<T>& values) {
  write_list(out);
  for (const T& value : values) OptionValue<T>::write(next_item(out), value);
}

template <class Trait>
inline constexpr bool kIsRange =
    std::is_same_v<Trait, Positive> || std::is_same_v<Trait, NotNegative> ||
    std::is_same_v<Trait, AtLeast> || std::is_same_v<Trait, InRange> ||
    std::is_same_v<Trait, FractionBelowOne>;

// The rules that a field's traits put on every parsed number. check() throws an Error with a
// predicate.
class FieldRules {
 public:
  explicit FieldRules(Option& option) : option_(option) {}

  void apply(const Positive&);
  void apply(const NotNegative&);
  void apply(const AtLeast& rule);
  void apply(const InRange& rule);
  void apply(const FractionBelowOne&);
  void apply(const OneOf& rule);
  void apply(const Refuses& rule);
  void apply(const Required&);
  void apply(const Alias& alias);
  void apply(const Means& means);
  void apply(const OffSwitch& off);
  void apply(const DefaultIs& text);
  void apply(const Own&);

  struct Range {
    double low, high;
    bool low_allowed, high_allowed;
    std::string rule;
    void check(double value) const;
  };
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  Option& option_;
  std::vector<Range> ranges_;
};

template <class T>
auto assign_to(T& member, std::vector<FieldRules::Range> ranges) {
  using Shape = FieldShape<T>;
  using Element = typename Shape::Element;
  return [&member, ranges = std::move(ranges)](std::span<const std::string> texts) {
    const auto element = [&ranges](const std::string& text) {
      Element value = OptionValue<Element>::parse(text);
      if constexpr (std::is_arithmetic_v<Element>) {
        for (const FieldRules::Range& range : ranges) range.check(static_cast<double>(value));
      }
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
}

class FieldBinder {
 public:
  using Sink = std::function<void(Option)>;
  FieldBinder(Sink sink, std::string group) : sink_(std::move(sink)), group_(std::move(group)) {}

  template <class T, class... Traits>
  void operator()(const char* name, T& member, const char* help, const Traits&... traits) {
    static_assert(
        std::is_arithmetic_v<typename FieldShape<T>::Element> || !(kIsRange<Traits> || ...),
        "a range rule needs a number");
    Option option = start<T>(name, help);
    FieldRules rules(option);
    (rules.apply(traits), ...);
    finish(std::move(option), member, rules);
  }

 private:
  template <class T>
  Option start(const char* name, const char* help) const {
    using Element = typename FieldShape<T>::Element;
    Option option;
    option.name = name;
    option.group = group_;
    option.help = help;
    option.kind = FieldShape<T>::kKind;
    option.type = OptionValue<Element>::type();
    if constexpr (std::is_enum_v<Element>) option.choices = names_of<Element>();
    return option;
  }

  template <class T>
  void finish(Option option, T& member, const FieldRules& rules) {
    if constexpr (std::is_same_v<T, bool>) option.starts_true = member;
    option.write = [&member](nlohmann::json& out) { write_field(out, member); };
    option.assign = assign_to(member, rules.ranges());
    sink_(std::move(option));
  }

  Sink sink_;  // takes each Option
  std::string group_;
};

// Compiled once, in option_binder.cpp.
extern template Option FieldBinder::start<bool>(const char*, const char*) const;
extern template Option FieldBinder::start<int64_t>(const char*, const char*) const;
extern template Option FieldBinder::start<double>(const char*, const char*) const;
extern template Option FieldBinder::start<std::string>(const char*, const char*) const;
extern template void FieldBinder::finish<bool>(Option, bool&, const FieldRules&);
extern template void FieldBinder::finish<int64_t>(Option, int64_t&, const FieldRules&);
extern template void FieldBinder::finish<double>(Option, double&, const FieldRules&);
extern template void FieldBinder::finish<std::string>(Option, std::string&, const FieldRules&);

}  // namespace phx
