#include "phalanx/data/story_corpus.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/data/story_grammar.h"

namespace phx {
namespace {

using story::Part;
using story::Story;

constexpr size_t kAnimalsPerPlace = story::kAnimals.size() / story::kPlaces.size();
static_assert(kAnimalsPerPlace * story::kPlaces.size() == story::kAnimals.size());

template <class Table>
const auto* pick(const Table& table, SplitMix& random) {
  return &table[random.below(static_cast<uint32_t>(table.size()))];
}

// One of the sentences of a part, added to the document.
void say(Part part, const Story& story, SplitMix& random, std::string& document) {
  std::vector<const story::Template*> choices;
  for (const story::Template& sentence : story::templates()) {
    if (sentence.part == part) choices.push_back(&sentence);
  }
  if (!document.empty()) document += ' ';
  document += story::fill(**pick(choices, random), story);
}

void pick_two_people(Story& story, SplitMix& random) {
  story.person = pick(story::kPeople, random);
  do {
    story.other = pick(story::kPeople, random);
  } while (story.other == story.person);
}

// Judges one sentence against the story so far, and takes it into the story.
void check_sentence(std::string_view sentence, Story& story, StoryCheck& check) {
  ++check.sentences;
  for (const story::Template& form : story::templates()) {
    const auto filled = story::match(form, sentence);
    if (!filled) continue;
    ++check.grammatical;
    if (form.opens) story = {};
    if (form.operation) story.operation = form.operation;
    for (const story::Filled& word : *filled) {
      const auto demanded = story::demanded(word.slot, story);
      const bool is_sum = word.slot == "result";
      if (demanded) {
        (is_sum ? check.sums : check.facts) += 1;
        (is_sum ? check.right_sums : check.right_facts) += *demanded == word.words;
        continue;
      }
      learn(word, story);
      if (word.slot == "an animal" && story.place) {
        ++check.facts;
        check.right_facts += story.animal->place == *story.place;
      }
      if (word.slot == "other" && story.person) {
        ++check.facts;
        check.right_facts += story.other != story.person;
      }
    }
    return;
  }
}

}  // namespace

std::string StoryWriter::next() {
  switch (random_.below(10)) {
    case 0:
    case 1:
      return sums();
    case 2:
    case 3:
      return counting();
    default:
      return outing();
  }
}

std::string StoryWriter::outing() {
  Story story;
  pick_two_people(story, random_);
  story.weather = pick(story::kWeathers, random_);
  const uint32_t place = random_.below(static_cast<uint32_t>(story::kPlaces.size()));
  story.place = &story::kPlaces[place];
  story.animal = &story::kAnimals[place * kAnimalsPerPlace + random_.below(kAnimalsPerPlace)];
  story.thing = pick(story::kThings, random_);

  std::string text;
  say(Part::opening, story, random_, text);
  if (!random_.one_in(3)) say(Part::cover, story, random_, text);
  say(Part::meeting, story, random_, text);
  if (!random_.one_in(3)) say(Part::sound, story, random_, text);
  if (!random_.one_in(3)) say(Part::feeding, story, random_, text);
  if (random_.one_in(2)) {
    say(Part::dropping, story, random_, text);
    say(Part::mood, story, random_, text);
  }
  say(Part::ending, story, random_, text);
  return text;
}

std::string StoryWriter::counting() {
  Story story;
  pick_two_people(story, random_);
  story.fruits = pick(story::kFruits, random_);
  const bool more = random_.one_in(2);
  story.operation = more ? '+' : '-';
  story.first = static_cast<int>(4 + random_.below(17));
  // At least two remain, so that "apples" is right.
  const int most = more ? 9 : story.first - 2;
  story.second = static_cast<int>(1 + random_.below(static_cast<uint32_t>(most)));

  std::string text;
  say(Part::have, story, random_, text);
  say(more ? Part::more : Part::less, story, random_, text);
  say(more ? Part::now_more : Part::now_less, story, random_, text);
  return text;
}

std::string StoryWriter::sums() {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    Story story;
    const bool plus = !random_.one_in(3);
    story.operation = plus ? '+' : '-';
    story.first = static_cast<int>(random_.below(50));
    story.second = static_cast<int>(plus ? random_.below(50) : random_.below(story.first + 1));
    say(plus ? Part::plus : Part::minus, story, random_, text);
  }
  return text;
}

std::string write_stories(uint64_t seed, int64_t min_bytes) {
  StoryWriter writer(seed);
  std::string text;
  while (static_cast<int64_t>(text.size()) < min_bytes) text += writer.next() + '\n';
  return text;
}

StoryCheck check_story_text(std::string_view text) {
  StoryCheck check;
  Story story;
  // The rest after the last full stop is a sentence that was cut off.
  text = text.substr(0, text.rfind('.') == std::string_view::npos ? 0 : text.rfind('.') + 1);
  while (!text.empty()) {
    if (text[0] == '\n') story = {};
    if (text[0] == '\n' || text[0] == ' ') {
      text.remove_prefix(1);
      continue;
    }
    // A line that ends without a full stop is a sentence too, and not one of ours.
    const size_t end = text.find_first_of(".\n");
    const size_t length = text[end] == '.' ? end + 1 : end;
    check_sentence(text.substr(0, length), story, check);
    text.remove_prefix(length);
  }
  return check;
}

std::string describe(const StoryCheck& check) {
  const auto part = [](int64_t some, int64_t all, std::string_view what) {
    const double percent = all == 0 ? 0. : 100. * static_cast<double>(some) / all;
    return fmt::format("{} of {} {} ({:.0f}%)", some, all, what, percent);
  };
  return part(check.grammatical, check.sentences, "sentences grammatical") + ", " +
         part(check.right_facts, check.facts, "facts right") + ", " +
         part(check.right_sums, check.sums, "sums right");
}

double unigram_entropy(std::span<const std::byte> text) {
  PHX_CHECK(!text.empty(), "an empty text has no entropy");
  std::array<int64_t, 256> counts{};
  for (const std::byte b : text) ++counts[static_cast<size_t>(b)];
  double entropy = 0.;
  for (const int64_t count : counts) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / static_cast<double>(text.size());
    entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace phx
