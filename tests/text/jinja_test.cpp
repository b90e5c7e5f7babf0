#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/jinja_template.h"

namespace phx::jinja {
namespace {

const Value& at(const Value& dict, std::string_view key) {
  const Value* found = find(dict.get<Dict>(), key);
  PHX_CHECK(found != nullptr, "the fixtures have no ", key);
  return *found;
}

const Value& fixtures() {
  static const Value all = parse_json(read_file(PHX_TEST_DATA "/chat/templates.json"));
  return all;
}

std::tm fixture_time() {  // scripts/jinja_oracle.py tells the same
  std::tm now = {};
  now.tm_year = 125;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 3;
  now.tm_wday = 5;
  now.tm_yday = 184;
  return now;
}

Value variables_of(const Value& test) {
  const Value* chat = find(test.get<Dict>(), "chat");
  if (chat == nullptr) return at(fixtures(), "values");
  Budget budget(1 << 20);
  auto items = at(fixtures(), "common").get<Dict>().items;
  items.emplace_back(text("messages"), at(at(fixtures(), "chats"), chat->text()));
  for (const auto& item : at(at(fixtures(), "extras"), at(test, "extra").text()).get<Dict>().items)
    items.push_back(item);
  return dict(std::move(items), budget);
}

void expect_as_jinja2(const std::string& name, const std::string& source, const Value& test) {
  const bool fails = find(test.get<Dict>(), "error") != nullptr;
  try {
    const Template made(source, name);
    const Rendered rendered = made.render(variables_of(test), {.now = fixture_time()});
    ASSERT_FALSE(fails) << name << ": Jinja2 has an error, ours gives: " << rendered.text << "\n"
                        << source;
    ASSERT_EQ(rendered.text, at(test, "text").text()) << name << "\n" << source;
    const Value* spans = find(test.get<Dict>(), "generation");
    ASSERT_EQ(rendered.generation.size(), spans == nullptr ? 0 : size_t(size_of(*spans))) << name;
    for (size_t i = 0; i < rendered.generation.size(); ++i) {
      const Values& span = spans->get<List>().items[i].get<List>().items;
      EXPECT_EQ(int64_t(rendered.generation[i].begin), span[0].integer()) << name;
      EXPECT_EQ(int64_t(rendered.generation[i].end), span[1].integer()) << name;
    }
  } catch (const Error& error) {
    EXPECT_TRUE(fails) << error.what() << "\n" << source;
    EXPECT_TRUE(std::string_view(error.what()).starts_with(name + ": line ")) << error.what();
  }
}

TEST(Jinja, RendersTheFixturesByteForByteAsJinja2) {
  const Values& all = at(fixtures(), "fixtures").get<List>().items;
  EXPECT_GT(all.size(), 250u);
  for (const Value& fixture : all)
    for (const Value& test : at(fixture, "cases").get<List>().items)
      expect_as_jinja2(at(fixture, "name").text(), at(fixture, "template").text(), test);
}

std::string rendered(const std::string& source, const char* variables = "{}",
                     const RenderOptions& options = {}) {
  return Template(source, "t.jinja").render(parse_json(variables), options).text;
}

std::string error_of(const std::string& source, const RenderOptions& options = {}) {
  try {
    return "no error, but " + rendered(source, "{\"x\": 1}", options);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Jinja, ErrorsNameTheTemplateTheLineAndWhatIsWrong) {
  EXPECT_EQ(error_of("\n\n{{ y.z }}"), "t.jinja: line 3: 'y' is undefined");
  EXPECT_EQ(error_of("a\n{% if x %}\n"),
            "t.jinja: line 2: the template ends, but {% endif %} is missing");
  EXPECT_EQ(error_of("{{ x + 'a' }}"), "t.jinja: line 1: '+' does not go between int and str");
  EXPECT_EQ(error_of("{{ raise_exception('no') }}"),
            "t.jinja: line 1: the template refuses the chat: no");
  EXPECT_EQ(error_of("{{ x.a.b }}"), "t.jinja: line 1: 'int object' has no attribute 'a'");
}

TEST(Jinja, WhatIsNotSupportedIsRefusedByItsName) {
  EXPECT_EQ(error_of("{{ x | urlize }}"), "t.jinja: line 1: the filter 'urlize' is not supported");
  EXPECT_EQ(error_of("{{ x is filter }}"), "t.jinja: line 1: the test 'filter' is not supported");
  EXPECT_EQ(error_of("{{ lipsum() }}"), "t.jinja: line 1: the function lipsum is not supported");
  EXPECT_EQ(error_of("{{ 'a'.encode() }}"),
            "t.jinja: line 1: the method str.encode is not supported");
  EXPECT_EQ(
      error_of("\n{% include 'other' %}"),
      "t.jinja: line 2: the statement 'include' is not supported: a chat template is one file "
      "without escaping");
  EXPECT_EQ(error_of("{% for a in x recursive %}{% endfor %}"),
            "t.jinja: line 1: recursive loops are not supported");
  EXPECT_EQ(error_of("{{ 0x10 }}"),
            "t.jinja: line 1: numbers in hexadecimal, octal or binary are not supported");
}

TEST(Jinja, AHostileTemplateIsStopped) {
  const RenderOptions options{.steps = 1'000'000};
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}"
           "{% endfor %}",
           "{{ 'x' * 10 ** 12 }}",
           "{{ 'x'.center(10 ** 12) }}",
           "{{ ([0] * 100000) * 100000 }}",
           "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
           "{% endfor %}{{ ns.l }}",
           "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
           "{% endfor %}{{ ns.l == ns.l[0] }}{{ ns.l | tojson }}",
       })
    EXPECT_NE(error_of(source, options).find("t.jinja: line "), std::string::npos)
        << error_of(source, options);
  EXPECT_NE(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("nested too deep"),
            std::string::npos);
  EXPECT_NE(error_of("{% set ns = namespace(l=[]) %}{% for i in range(500) %}{% set ns.l = [ns.l] "
                     "%}{% endfor %}")
                .find("nested more than 100 deep"),
            std::string::npos);
  EXPECT_NE(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                .find("nested more than"),
            std::string::npos);
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += " + 1";
  EXPECT_NE(error_of(sum + " }}").find("nested more than"), std::string::npos);
}

TEST(Jinja, NamespacesMayHoldThemselves) {  // and do not leak: the sanitizers' builds look
  EXPECT_EQ(rendered("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                     "{% set a.loop = none %}{% for x in [1] %}{% set a.loop = loop %}{% endfor %}"
                     "{{ a.b.a.b is defined }}{{ a.loop.index }}"),
            "True1");
}

TEST(Jinja, WhatIsNotDefinedIsCallable) {  // as Jinja2's class for it is; calling it is an error
  EXPECT_EQ(rendered("{{ x is callable }} {{ 1 is callable }}"), "True False");
}

TEST(Jinja, ALoopHasATextOfItsOwn) {
  EXPECT_EQ(rendered("{% for x in 'abc' %}{{ loop }}{% endfor %}"),
            "<LoopContext 1/3><LoopContext 2/3><LoopContext 3/3>");
}

TEST(Jinja, AMacroSeesTheScopeItWasDefinedIn) {
  EXPECT_EQ(
      rendered("{% set ns = namespace() %}{% for x in [1, 2] %}{% macro m() %}<{{ x }}{{ y }}>"
               "{% endmacro %}{% set y = x * 10 %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
      "<220>");
}

TEST(Jinja, BlocksThatAssistantsWriteAreFoundInBytes) {
  const Template made("ä{% generation %}ö{{ x }}{% endgeneration %}z", "t.jinja");
  EXPECT_TRUE(made.has_generation_blocks());
  const Rendered text = made.render(parse_json(R"({"x": "ü!"})"));
  EXPECT_EQ(text.text, "äöü!z");
  ASSERT_EQ(text.generation.size(), 1u);
  EXPECT_EQ(
      text.text.substr(text.generation[0].begin, text.generation[0].end - text.generation[0].begin),
      "öü!");
  EXPECT_EQ(
      error_of("{% set a %}{% generation %}{% endgeneration %}{% endset %}"),
      "t.jinja: line 1: a {% generation %} block in a macro or a block that captures text has "
      "no known place");
}

}  // namespace
}  // namespace phx::jinja
