// The world of the story corpus: who lives in it, and what is true there.
#pragma once

#include <array>
#include <string_view>

namespace phx::story {

struct Person {
  std::string_view name;
  bool is_she;
};

struct Weather {
  std::string_view name, cover;
};

struct Animal {
  std::string_view name, with_article, place, sound, food;
};

struct Thing {
  std::string_view name, fate, mood;
};

inline constexpr std::array<Person, 20> kPeople = {{
    {"Anna", true},   {"Ben", false},  {"Clara", true},  {"David", false}, {"Emma", true},
    {"Felix", false}, {"Grace", true}, {"Henry", false}, {"Iris", true},   {"Jack", false},
    {"Kate", true},   {"Leo", false},  {"Mia", true},    {"Noah", false},  {"Olive", true},
    {"Paul", false},  {"Rose", true},  {"Sam", false},   {"Tina", true},   {"Will", false},
}};

inline constexpr std::array<Weather, 5> kWeathers = {{
    {"sunny", "a hat"},
    {"rainy", "an umbrella"},
    {"windy", "a kite"},
    {"snowy", "a scarf"},
    {"foggy", "a lamp"},
}};

inline constexpr std::array<std::string_view, 6> kPlaces = {"farm",   "forest", "river",
                                                            "garden", "beach",  "zoo"};

// Three of each place, in the order of kPlaces. No two share a sound or a food.
inline constexpr std::array<Animal, 18> kAnimals = {{
    {"cow", "a cow", "farm", "moo", "some grass"},
    {"hen", "a hen", "farm", "cluck", "some corn"},
    {"horse", "a horse", "farm", "neigh", "a carrot"},
    {"owl", "an owl", "forest", "hoot", "some meat"},
    {"wolf", "a wolf", "forest", "howl", "a bone"},
    {"bear", "a bear", "forest", "growl", "some honey"},
    {"duck", "a duck", "river", "quack", "some bread"},
    {"frog", "a frog", "river", "croak", "a fly"},
    {"otter", "an otter", "river", "squeak", "a fish"},
    {"cat", "a cat", "garden", "meow", "some milk"},
    {"bee", "a bee", "garden", "buzz", "a flower"},
    {"robin", "a robin", "garden", "tweet", "a worm"},
    {"gull", "a gull", "beach", "screech", "a chip"},
    {"seal", "a seal", "beach", "bark", "a herring"},
    {"crab", "a crab", "beach", "click", "some seaweed"},
    {"lion", "a lion", "zoo", "roar", "a steak"},
    {"snake", "a snake", "zoo", "hiss", "an egg"},
    {"monkey", "a monkey", "zoo", "chatter", "a banana"},
}};

inline constexpr std::array<Thing, 10> kThings = {{
    {"a glass", "broke", "sad"},
    {"a cup", "cracked", "sad"},
    {"an ice cream", "melted", "sad"},
    {"a letter", "got wet", "sad"},
    {"a balloon", "flew away", "sad"},
    {"a ball", "bounced back", "glad"},
    {"a feather", "floated down", "glad"},
    {"a coin", "rolled in a circle", "glad"},
    {"a pillow", "fell softly", "glad"},
    {"a bell", "rang", "glad"},
}};

inline constexpr std::array<std::string_view, 6> kFruits = {"apples", "pears", "plums",
                                                            "nuts",   "coins", "shells"};

}  // namespace phx::story
