#include "phalanx/cli/inspect_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;

TEST(InspectData, TextBecomesSamplesThatCanBeLookedAt) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"defgh\"}\n");
  const std::string prefix = (folder / "a").string(), pair = prefix + "_text_document";
  ASSERT_EQ(run({"preprocess", "--input", (folder / "a.jsonl").string(), "--output-prefix", prefix,
                 "--append-eod", "--tokenizer-type", "ByteTokenizer"})
                .code,
            kExitDone);
  const auto counts = nlohmann::json::parse(run({"inspect", "data", pair, "--json"}).out);
  EXPECT_EQ(counts["documents"], 2);
  EXPECT_EQ(counts["tokens"], 10);
  EXPECT_EQ(counts["dtype"], "uint16");

  ASSERT_EQ(run({"merge", "--input", pair, pair, "--output-prefix", prefix + "_twice"}).code,
            kExitDone);
  EXPECT_THAT(run({"inspect", "data", prefix + "_twice"}).out,
              HasSubstr("4 sequences in 4 documents"));

  const auto sample = nlohmann::json::parse(
      run({"inspect", "data", pair, "--json", "--sample", "0", "--seq-length", "9", "--split", "1",
           "--tokenizer-type", "ByteTokenizer", "--eod-mask-loss", "--reset-attention-mask"})
          .out);
  std::vector<int> tokens = sample["tokens"], mask = sample["loss_mask"];
  const std::vector<int> cu_seqlens = sample["cu_seqlens"];
  const auto end = std::find(tokens.begin(), tokens.end(), 256) - tokens.begin();
  EXPECT_EQ(mask[size_t(end)], 0);
  EXPECT_EQ(cu_seqlens, (std::vector<int>{0, int(end) + 1, 9}));
}

TEST(InspectData, ABlendCanBeLookedAt) {
  const TempFolder folder;
  const auto made = [&](const char* name, const std::string& letters) {
    std::string lines;
    for (int i = 0; i < 40; ++i) lines += "{\"text\": \"" + letters + "\"}\n";
    write_file(folder / "in.jsonl", lines);
    EXPECT_EQ(run({"preprocess", "--input", folder / "in.jsonl", "--output-prefix", folder / name,
                   "--tokenizer-type", "ByteTokenizer"})
                  .code,
              kExitDone);
    return (folder / name).string() + "_text_document";
  };
  const std::string a = made("a", "aaaa"), b = made("b", "bbbb");
  const auto json = [](const std::vector<std::string>& args) {
    const Outcome outcome = run(args);
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  const auto pairs = json({"inspect", "data", "1", a, "3", b, "--json"});
  EXPECT_EQ(pairs["blend"][0]["weight"], 0.25);
  EXPECT_EQ(pairs["blend"][1]["tokens"], 160);
  EXPECT_THAT(run({"inspect", "data", "1", a, "3", b}).out, HasSubstr("75% of the blend: " + b));

  // Of 8 places the second pair has 6; ids say which pair a sample is of.
  int of_b = 0;
  for (int i = 0; i < 8; ++i) {
    const auto sample =
        json({"inspect", "data", "--data-path", "1", a, "3", b, "--json", "--split", "1",
              "--num-samples", "8", "--seq-length", "6", "--sample", std::to_string(i)});
    const int dataset = sample["blend"]["dataset"];
    of_b += dataset;
    EXPECT_EQ(sample["tokens"], std::vector<int>(6, dataset == 1 ? 'b' : 'a'));
    EXPECT_EQ(sample["loss_mask"], std::vector<int>(6, 1));
  }
  EXPECT_EQ(of_b, 6);
  EXPECT_EQ(json({"inspect", "data", "--train-data-path", a, "--valid-data-path", b, "--split-name",
                  "valid", "--json"})["prefix"],
            b);
  EXPECT_THAT(run({"inspect", "data", "1", a, "3", b, "--num-samples", "8", "--split", "1",
                   "--seq-length", "6", "--sample", "99"})
                  .err,
              HasSubstr("--sample 99: the blend has "));
}

TEST(InspectData, ChatsCanBeLookedAt) {
  const TempFolder folder;
  write_file(folder / "chat.jinja",
             "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }};{% endfor %}"
             "{% if add_generation_prompt %}[a]{% endif %}");
  write_file(folder / "chats.jsonl", R"({"messages": [{"role": "user", "content": "hi"}, )"
                                     R"({"role": "assistant", "content": "yo"}]})"
                                     "\n");
  std::vector<std::string> args = {"inspect",
                                   "data",
                                   (folder / "chats.jsonl").string(),
                                   "--sft",
                                   "--split",
                                   "1",
                                   "--chat-template",
                                   folder / "chat.jinja",
                                   "--tokenizer-type",
                                   "ByteTokenizer",
                                   "--seq-length",
                                   "16",
                                   "--json"};
  const auto counts = nlohmann::json::parse(run(args).out);
  EXPECT_EQ(counts["conversations"], 1);
  EXPECT_EQ(counts["samples"], 1);
  args.insert(args.end(), {"--sample", "0"});
  const auto sample = nlohmann::json::parse(run(args).out);
  const std::vector<int> tokens = sample["tokens"], labels = sample["labels"],
                         mask = sample["loss_mask"];
  std::string text, learned;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 256) text += char(tokens[i]);
    if (mask[i] != 0 && labels[i] < 256) learned += char(labels[i]);
  }
  EXPECT_THAT(text, HasSubstr("[u]hi;[a]yo"));
  EXPECT_EQ(learned.substr(0, 2), "yo");
  EXPECT_EQ(learned.find("hi"), std::string::npos);
  EXPECT_EQ(counts["learned"], std::count(mask.begin(), mask.end(), 1));
}

TEST(InspectData, LengthsAreCountedInClassesOfTwo) {
  const TempFolder folder;
  write_file(folder / "a.txt", "a\nbb\nccc\ndddd\n");
  ASSERT_EQ(run({"preprocess", "--input", folder / "a.txt", "--output-prefix", folder / "a",
                 "--tokenizer-type", "ByteTokenizer"})
                .code,
            kExitDone);
  const std::string pair = (folder / "a").string() + "_text_document";
  const auto counts = nlohmann::json::parse(run({"inspect", "data", pair, "--json"}).out);
  EXPECT_EQ(counts["length"]["least"], 1);
  EXPECT_EQ(counts["length"]["most"], 4);
  EXPECT_EQ(counts["length"]["median"], 3);
  EXPECT_EQ(counts["length"]["mean"], 2.5);
  ASSERT_EQ(counts["histogram"].size(), 3u);
  EXPECT_EQ(counts["histogram"][1]["from"], 2);
  EXPECT_EQ(counts["histogram"][1]["below"], 4);
  EXPECT_EQ(counts["histogram"][1]["count"], 2);
}

TEST(InspectData, WrongUsesAreTold) {
  EXPECT_EQ(run({"inspect", "data"}).code, kExitUsage);
  EXPECT_THAT(run({"inspect", "data", "a", "--data-path", "b"}).err,
              HasSubstr("the data is named twice, by a and by a flag"));
  EXPECT_THAT(run({"inspect", "data", "a", "--sample", "0"}).err,
              HasSubstr("--sample and --sft need --seq-length"));
  EXPECT_THAT(run({"inspect", "data", "a", "--sft", "--seq-length", "8"}).err,
              HasSubstr("--sft needs --tokenizer-type"));
}

}  // namespace
}  // namespace phx
