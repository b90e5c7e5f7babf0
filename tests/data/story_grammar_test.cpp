#include "phalanx/data/story_grammar.h"

#include <gtest/gtest.h>

#include <set>

namespace phx {
namespace {

using namespace story;

const Template& first_of(Part part) {
  for (const Template& form : templates())
    if (form.part == part) return form;
  ADD_FAILURE() << "no such part";
  return templates()[0];
}

const Person& a_person(bool is_she) {
  for (const Person& person : kPeople)
    if (person.is_she == is_she) return person;
  ADD_FAILURE() << "no such person";
  return kPeople[0];
}

Story a_story(bool is_she) {
  Story story;
  story.person = &a_person(is_she);
  story.other = &a_person(!is_she);
  story.weather = &kWeathers[0];
  story.place = &kPlaces[0];
  story.animal = &kAnimals[0];
  story.thing = &kThings[0];
  story.fruits = &kFruits[0];
  story.first = 12;
  story.second = 5;
  story.operation = '+';
  return story;
}

TEST(StoryGrammar, WhatIsFilledInIsReadBack) {
  for (const bool is_she : {false, true}) {
    const Story story = a_story(is_she);
    for (const Template& form : templates()) {
      const std::string text = fill(form, story);
      EXPECT_EQ(text.find('<'), std::string::npos) << text;
      const auto filled = match(form, text);
      ASSERT_TRUE(filled) << text;
      for (const Filled& slot : *filled)
        if (const auto words = demanded(slot.slot, story)) EXPECT_EQ(slot.words, *words) << text;
    }
  }
}

TEST(StoryGrammar, AReaderLearnsWhatTheSentencesSay) {
  const Story told = a_story(true);
  Story heard;
  for (const Part part : {Part::opening, Part::meeting, Part::dropping, Part::have, Part::more}) {
    const std::string text = fill(first_of(part), told);
    const auto filled = match(first_of(part), text);
    ASSERT_TRUE(filled) << text;
    for (const Filled& slot : *filled) learn(slot, heard);
  }
  EXPECT_EQ(heard.person, told.person);
  EXPECT_EQ(heard.weather, told.weather);
  EXPECT_EQ(heard.place, told.place);
  EXPECT_EQ(heard.animal, told.animal);
  EXPECT_EQ(heard.thing, told.thing);
  EXPECT_EQ(heard.fruits, told.fruits);
  EXPECT_EQ(heard.first, 12);
  EXPECT_EQ(heard.second, 5);
}

TEST(StoryGrammar, PronounsFollowThePerson) {
  EXPECT_EQ(demanded("he", a_story(true)), "she");
  EXPECT_EQ(demanded("him", a_story(true)), "her");
  EXPECT_EQ(demanded("He", a_story(false)), "He");
  EXPECT_FALSE(demanded("he", Story())) << "of nobody nothing is demanded";
}

TEST(StoryGrammar, SumsFollowTheOperation) {
  Story story = a_story(true);
  EXPECT_EQ(demanded("result", story), "17");
  story.operation = '-';
  EXPECT_EQ(demanded("result", story), "7");
  story.second = -1;
  EXPECT_FALSE(demanded("result", story));
}

TEST(StoryGrammar, NumbersAreWrittenPlainly) {
  const Template& plus = first_of(Part::plus);
  EXPECT_TRUE(match(plus, "0 + 10 = 10."));
  EXPECT_FALSE(match(plus, "00 + 10 = 10."));
  EXPECT_FALSE(match(plus, "1234567 + 1 = 2.")) << "no more than six digits";
  EXPECT_FALSE(match(plus, "-1 + 1 = 0."));
  EXPECT_FALSE(match(plus, "1 + 1 = 2. ")) << "nothing follows";
}

TEST(StoryGrammar, StoriesOpenWhereASentenceStandsAlone) {
  std::set<Part> opens;
  for (const Template& form : templates())
    if (form.opens) opens.insert(form.part);
  EXPECT_EQ(opens, (std::set<Part>{Part::opening, Part::have, Part::plus, Part::minus}));
}

}  // namespace
}  // namespace phx
