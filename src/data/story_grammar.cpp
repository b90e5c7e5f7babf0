#include "phalanx/data/story_grammar.h"

#include <algorithm>
#include <charconv>

#include "phalanx/base/error.h"

namespace phx::story {
namespace {

constexpr Template kTemplates[] = {
    {Part::opening, "One <weather> day, <name> went to the <place>.", true},
    {Part::opening, "It was a <weather> day, and <name> walked to the <place>.", true},
    {Part::cover, "<He> took <cover> along."},
    {Part::cover, "Because it was <weather>, <he> took <cover>."},
    {Part::meeting, "There <he> met <an animal>."},
    {Part::meeting, "At the <place>, <he> saw <an animal>."},
    {Part::sound, "It said <sound>."},
    {Part::sound, "The <animal> looked at <him> and said <sound>."},
    {Part::feeding, "The <animal> was hungry, so <name> gave it <food>."},
    {Part::feeding, "<He> gave the <animal> <food>, and it was happy."},
    {Part::dropping, "Then <name> dropped <thing>, and it <fate>."},
    {Part::dropping, "On the way back <he> dropped <thing>, and it <fate>."},
    {Part::mood, "<He> was <mood>."},
    {Part::mood, "That made <him> <mood>."},
    {Part::ending, "In the evening, <name> told <other> about the <animal>."},
    {Part::ending, "At home, <other> asked <him> about the <animal>."},
    {Part::have, "<name> had <first> <fruits>.", true},
    {Part::more, "<other> gave <him> <second> more.", false, '+'},
    {Part::more, "Then <he> found <second> more.", false, '+'},
    {Part::less, "<He> gave <second> of them to <other>.", false, '-'},
    {Part::less, "Then <he> lost <second> of them.", false, '-'},
    {Part::now_more, "Now <he> had <result> <fruits>."},
    {Part::now_less, "Now <he> had <result> <fruits> left."},
    {Part::plus, "<first> + <second> = <result>.", true, '+'},
    {Part::minus, "<first> - <second> = <result>.", true, '-'},
};

template <class Table>
auto find_in(const Table& table, std::string_view words, auto&& key) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const auto& entry) { return key(entry) == words; });
  return found == table.end() ? nullptr : &*found;
}

const Person* find_person(std::string_view words) {
  return find_in(kPeople, words, [](const Person& p) { return p.name; });
}

bool is_number_slot(std::string_view slot) {
  return slot == "first" || slot == "second" || slot == "result";
}

// Every filling that a slot can have, whatever the story.
std::vector<std::string_view> vocabulary(std::string_view slot) {
  std::vector<std::string_view> words;
  const auto take = [&](const auto& table, auto&& key) {
    for (const auto& entry : table) words.push_back(key(entry));
  };
  if (slot == "name" || slot == "other") take(kPeople, [](auto& p) { return p.name; });
  if (slot == "he") words = {"he", "she"};
  if (slot == "He") words = {"He", "She"};
  if (slot == "him") words = {"him", "her"};
  if (slot == "weather") take(kWeathers, [](auto& w) { return w.name; });
  if (slot == "cover") take(kWeathers, [](auto& w) { return w.cover; });
  if (slot == "place") take(kPlaces, [](auto& p) { return p; });
  if (slot == "animal") take(kAnimals, [](auto& a) { return a.name; });
  if (slot == "an animal") take(kAnimals, [](auto& a) { return a.with_article; });
  if (slot == "sound") take(kAnimals, [](auto& a) { return a.sound; });
  if (slot == "food") take(kAnimals, [](auto& a) { return a.food; });
  if (slot == "thing") take(kThings, [](auto& t) { return t.name; });
  if (slot == "fate") take(kThings, [](auto& t) { return t.fate; });
  if (slot == "mood") words = {"sad", "glad"};
  if (slot == "fruits") take(kFruits, [](auto& f) { return f; });
  PHX_ASSERT(!words.empty(), "no vocabulary for <", slot, ">");
  return words;
}

// How many characters at the start of `text` can fill the slot; 0 if none. Some words begin with
// others ("he" and "hen" would): the longest wins, and what follows in the template decides.
size_t filling_length(std::string_view slot, std::string_view text) {
  if (is_number_slot(slot)) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const bool plain = digits >= 1 && digits <= 6 && (digits == 1 || text[0] != '0');
    return plain ? digits : 0;
  }
  size_t longest = 0;
  for (const std::string_view words : vocabulary(slot)) {
    if (text.starts_with(words)) longest = std::max(longest, words.size());
  }
  return longest;
}

// A template is cut into literal text and the slot behind it.
struct Piece {
  std::string_view literal, slot;
};

std::vector<Piece> pieces(std::string_view text) {
  std::vector<Piece> result;
  while (!text.empty()) {
    const size_t open = text.find('<');
    if (open == std::string_view::npos) {
      result.push_back({text, {}});
      break;
    }
    const size_t close = text.find('>', open);
    result.push_back({text.substr(0, open), text.substr(open + 1, close - open - 1)});
    text.remove_prefix(close + 1);
  }
  return result;
}

}  // namespace

std::span<const Template> templates() { return kTemplates; }

std::optional<std::string> demanded(std::string_view slot, const Story& story) {
  const auto text = [](std::string_view words) { return std::optional<std::string>(words); };
  if (story.person) {
    const bool she = story.person->is_she;
    if (slot == "name") return text(story.person->name);
    if (slot == "he") return text(she ? "she" : "he");
    if (slot == "He") return text(she ? "She" : "He");
    if (slot == "him") return text(she ? "her" : "him");
  }
  if (story.weather && slot == "weather") return text(story.weather->name);
  if (story.weather && slot == "cover") return text(story.weather->cover);
  if (story.place && slot == "place") return text(*story.place);
  if (story.animal && slot == "animal") return text(story.animal->name);
  if (story.animal && slot == "sound") return text(story.animal->sound);
  if (story.animal && slot == "food") return text(story.animal->food);
  if (story.thing && slot == "fate") return text(story.thing->fate);
  if (story.thing && slot == "mood") return text(story.thing->mood);
  if (story.fruits && slot == "fruits") return text(*story.fruits);
  if (slot == "result" && story.first >= 0 && story.second >= 0 && story.operation) {
    const int sign = story.operation == '+' ? 1 : -1;
    return std::to_string(story.first + sign * story.second);
  }
  return std::nullopt;
}

std::string fill(const Template& sentence, const Story& story) {
  std::string text;
  for (const Piece& piece : pieces(sentence.text)) {
    text += piece.literal;
    if (piece.slot.empty()) continue;
    if (piece.slot == "other") {
      text += story.other->name;
    } else if (piece.slot == "an animal") {
      text += story.animal->with_article;
    } else if (piece.slot == "thing") {
      text += story.thing->name;
    } else if (piece.slot == "first") {
      text += std::to_string(story.first);
    } else if (piece.slot == "second") {
      text += std::to_string(story.second);
    } else {
      text += demanded(piece.slot, story).value();
    }
  }
  return text;
}

std::optional<std::vector<Filled>> match(const Template& sentence, std::string_view text) {
  std::vector<Filled> filled;
  for (const Piece& piece : pieces(sentence.text)) {
    if (!text.starts_with(piece.literal)) return std::nullopt;
    text.remove_prefix(piece.literal.size());
    if (piece.slot.empty()) continue;
    const size_t length = filling_length(piece.slot, text);
    if (length == 0) return std::nullopt;
    filled.push_back({piece.slot, text.substr(0, length)});
    text.remove_prefix(length);
  }
  if (!text.empty()) return std::nullopt;
  return filled;
}

void learn(const Filled& filled, Story& story) {
  const auto [slot, words] = filled;
  const auto itself = [](std::string_view entry) { return entry; };
  if (slot == "name") story.person = find_person(words);
  if (slot == "other") story.other = find_person(words);
  if (slot == "weather") story.weather = find_in(kWeathers, words, [](auto& w) { return w.name; });
  if (slot == "place") story.place = find_in(kPlaces, words, itself);
  if (slot == "animal") story.animal = find_in(kAnimals, words, [](auto& a) { return a.name; });
  if (slot == "an animal") {
    story.animal = find_in(kAnimals, words, [](auto& a) { return a.with_article; });
  }
  if (slot == "thing") story.thing = find_in(kThings, words, [](auto& t) { return t.name; });
  if (slot == "fruits") story.fruits = find_in(kFruits, words, itself);
  int* number = slot == "first" ? &story.first : slot == "second" ? &story.second : nullptr;
  if (number) std::from_chars(words.data(), words.data() + words.size(), *number);
}

}  // namespace phx::story
