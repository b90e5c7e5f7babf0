// The sentences of the story corpus. Each is a template with slots; the writer fills them from a
// story, the checker reads them back and compares them with the story so far. One table serves
// both, so that they cannot disagree.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/data/story_world.h"

namespace phx::story {

// What has been said so far; null or negative where nothing has.
struct Story {
  const Person* person = nullptr;
  const Person* other = nullptr;
  const Weather* weather = nullptr;
  const std::string_view* place = nullptr;
  const Animal* animal = nullptr;
  const Thing* thing = nullptr;
  const std::string_view* fruits = nullptr;
  int first = -1, second = -1;
  char operation = 0;  // '+' or '-'
};

enum class Part {
  opening,
  cover,
  meeting,
  sound,
  feeding,
  dropping,
  mood,
  ending,
  have,
  more,
  less,
  now_more,
  now_less,
  plus,
  minus,
};

struct Template {
  Part part;
  std::string_view text;  // "<slot>" stands for a word or words
  bool opens = false;     // a new story begins
  char operation = 0;     // what <first> and <second> are put together by
};

std::span<const Template> templates();

// The sentence with its slots filled.
std::string fill(const Template& sentence, const Story& story);

// The slots of `text` if the template can form it: pairs of slot and words.
struct Filled {
  std::string_view slot, words;
};
std::optional<std::vector<Filled>> match(const Template& sentence, std::string_view text);

// The words that the story so far demands in a slot; nothing where it leaves them open.
std::optional<std::string> demanded(std::string_view slot, const Story& story);

// Takes the words of an open slot into the story.
void learn(const Filled& filled, Story& story);

}  // namespace phx::story
