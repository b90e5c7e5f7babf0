// What a config field may say about itself besides its name, member and help: rules on its value,
// other spellings, where it comes from. Plain data, so that a config header stays light.
//
//   template <class Field>
//   void each(Field&& field) {
//     field("lr", lr, "peak learning rate", Positive{});
//   }
//
// The default is the member's. A bool that starts false is the switch --name; one that starts true
// is turned off by --no-name and --disable-name. A std::optional may stay unset, a std::vector
// takes one or more values. base/options.h turns the list into flags, YAML keys, help and error
// texts.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace phx {

// Rules on one value; on a list they hold for each element.
struct Positive {};
struct NotNegative {};
struct AtLeast {
  double low;
};
struct InRange {  // low <= value <= high
  double low, high;
};
struct FractionBelowOne {};  // 0 <= value < 1: dropout, Adam's betas
struct OneOf {
  std::vector<std::string> choices;
};

// Choices that Megatron has and this build has not, each with the reason.
struct Refuses {
  std::vector<std::pair<std::string, std::string>> choices;  // value, reason
};

struct Required {};  // a run without it is an error

// Spellings. Alias takes the same values; Means is a switch that stands for `--name value`;
// OffSwitch replaces the made-up --no-name of a bool that starts true.
struct Alias {
  std::string name;
};
struct Means {
  std::string flag, value;
};
struct OffSwitch {
  std::string flag;
};

struct DefaultIs {  // what an unset field comes to, in words
  std::string text;
};
struct Own {};  // Phalanx's own: Megatron has no such flag

}  // namespace phx
