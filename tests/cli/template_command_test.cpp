#include "phalanx/cli/template_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;
using Json = nlohmann::json;

TEST(TemplateCommand, ShowsTheFirstChatsWithWhatIsLearned) {
  const TempFolder folder;
  write_file(folder / "chat.jinja", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
  write_file(folder / "chats.jsonl",
             "{\"prompt\": \"one\", \"completion\": \" two\"}\n\n"
             "{\"prompt\": \"a\", \"completion\": \" b\"}\n{\n");
  const std::vector<std::string> args = {"template", "--chat-template", folder / "chat.jinja",
                                         "--input", folder / "chats.jsonl"};
  const Outcome outcome = run(args);
  EXPECT_EQ(outcome.out, "one【 two】\n---\na【 b】\n---\n") << "three lines, one of them blank";
  std::vector<std::string> more = args;
  more.insert(more.end(), {"--chats", "4"});
  EXPECT_EQ(run(more).code, kExitFailed);
  EXPECT_THAT(run(more).err, HasSubstr((folder / "chats.jsonl").string() + ":4: "));
}

TEST(TemplateCommand, WhatIsMissingIsNamed) {
  const Outcome outcome = run({"template"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("--chat-template is missing"));
  EXPECT_THAT(outcome.err, HasSubstr("--input is missing"));
}

std::vector<Json> answers(const std::string& jobs) {
  const TempFolder folder;
  write_file(folder / "jobs", jobs);
  const Outcome outcome = run({"template", "--batch", folder / "jobs"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  std::istringstream lines(outcome.out);
  std::vector<Json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
  return all;
}

TEST(TemplateCommand, EveryJobOfABatchHasItsAnswer) {
  const auto all = answers(
      R"({"template": "{{ a }}{% generation %}b{% endgeneration %}", "variables": {"a": 1}})"
      "\n"
      R"({"template": "{{ raise_exception('no') }}", "variables": {}})"
      "\n"
      R"({"template": "{{ strftime_now('%Y') }}", "variables": {}, "now": "2025-07-04T09:05:03"})"
      "\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["text"], "1b");
  EXPECT_EQ(all[0]["generation"], Json::parse("[[1, 2]]"));
  EXPECT_THAT(all[1]["error"].get<std::string>(), HasSubstr("no"));
  EXPECT_EQ(all[2]["text"], "2025");
}

TEST(TemplateCommand, TheLastJobOfABatchNeedsNoLineEnd) {
  const auto all = answers(R"({"template": "x", "variables": {}})");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["text"], "x");
}

TEST(TemplateCommand, AJobThatIsNoneIsAnsweredAndTheOthersGoOn) {
  const auto all = answers("{\"variables\": {}}\n{\n{\"template\": \"x\", \"variables\": {}}\n");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0]["error"].get<std::string>(), HasSubstr("template"));
  EXPECT_TRUE(all[1].contains("error"));
  EXPECT_EQ(all[2]["text"], "x");
}

}  // namespace
}  // namespace phx
