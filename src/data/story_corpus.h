// Short stories and sums from a small grammar of our own: text that a tiny model learns within a
// minute, and of which a program can say whether it is right. Each document is one line:
//
//   One rainy day, Mia went to the farm. She took an umbrella along. There she met a hen. It said
//   cluck. The hen was hungry, so Mia gave it some corn. In the evening, Mia told Ben about the
//   hen. Leo had 12 plums. Rose gave him 5 more. Now he had 17 plums. 17 + 25 = 42. 30 - 4 = 26. 8
//   + 0 = 8.
//
// Names have their pronouns, animals their places, sounds and food, things what happens when they
// fall: a model that has learned these tells consistent stories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "phalanx/data/split_mix.h"

namespace phx {

// Documents without end. The same seed gives the same text on every machine and in every version
// of Phalanx (a test says so): losses can be compared.
class StoryWriter {
 public:
  explicit StoryWriter(uint64_t seed) : random_(seed) {}

  std::string next();  // one document, without a line feed

 private:
  std::string outing();
  std::string counting();
  std::string sums();

  SplitMix random_;
};

// Whole documents, a line each, until there are `min_bytes` of text.
std::string write_stories(uint64_t seed, int64_t min_bytes);

// What can be said about a text, a model's for instance. Sentences end with a full stop; the rest
// after the last one is not judged, since sampling stops anywhere.
struct StoryCheck {
  int64_t sentences = 0;
  int64_t grammatical = 0;  // sentences that the grammar can form
  // Words of grammatical sentences that the story so far decides (a pronoun, the sound of a hen),
  // and how many of them are as it decides.
  int64_t facts = 0;
  int64_t right_facts = 0;
  int64_t sums = 0;
  int64_t right_sums = 0;
};

// Every line starts a new document; so does an opening sentence.
StoryCheck check_story_text(std::string_view text);

// "38 of 40 sentences grammatical (95%), 61 of 64 facts right (95%), 3 of 4 sums right (75%)"
std::string describe(const StoryCheck& check);

// The entropy of single bytes, in nats: the loss of a model that has learned how often each byte
// comes and nothing else.
double unigram_entropy(std::span<const std::byte> text);

}  // namespace phx
