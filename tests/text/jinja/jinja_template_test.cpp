#include "phalanx/text/jinja/jinja_template.h"

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaTemplate, IsRenderedManyTimes) {
  const Template hello("Hello {{ name | upper }}!", "hello.jinja");
  EXPECT_EQ(hello.name(), "hello.jinja");
  EXPECT_EQ(hello.render(parse_json(R"({"name": "you"})")).text, "Hello YOU!");
  EXPECT_EQ(hello.render(parse_json(R"({"name": "me"})")).text, "Hello ME!");
}

TEST(JinjaTemplate, TellsWhatGenerationBlocksWrote) {
  const Template chat("ä{% generation %}ö{{ x }}{% endgeneration %}.", "chat");
  EXPECT_TRUE(chat.has_generation_blocks());
  const Rendered rendered = chat.render(test_variables());
  EXPECT_EQ(rendered.text, "äö3.");
  ASSERT_EQ(rendered.generation.size(), 1u);
  EXPECT_EQ(rendered.generation[0].begin, 2u);  // in bytes
  EXPECT_EQ(rendered.generation[0].end, 5u);
  EXPECT_FALSE(Template("{{ x }}", "plain").has_generation_blocks());
}

TEST(JinjaTemplate, TellsWhichTurnOfALoopWroteWhat) {
  const Template chat("{% for p in people %}{{ p.name }}, {% endfor %}", "chat");
  const Values& watched = find(test_variables().get<Dict>(), "people")->get<List>().items;
  const Rendered rendered = chat.render(test_variables(), {.watched = &watched});
  ASSERT_EQ(rendered.watched.size(), 3u);
  EXPECT_EQ(rendered.watched[1].index, 1u);
  EXPECT_EQ(rendered.watched[1].span.begin, 5u);
  EXPECT_EQ(rendered.watched[1].span.end, 10u);
}

TEST(JinjaTemplate, StopsWhenItsStepsAreUsedUp) {
  const Template loop("{% for i in range(1000) %}{{ i }}{% endfor %}", "loop");
  EXPECT_EQ(loop.render(test_variables()).text.size(), 2890u);
  EXPECT_THROW(loop.render(test_variables(), {.steps = 100}), Error);
}

}  // namespace
}  // namespace phx::jinja
