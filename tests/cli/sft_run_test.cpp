// --sft from the command line to a trained model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/base/json_lines.h"
#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/data/split_mix.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int code;
  std::string out, err;
};

Outcome run(const std::string& flags, std::vector<std::string> more) {
  std::vector<std::string> args;
  std::istringstream words(flags);
  for (std::string word; words >> word;) args.push_back(word);
  args.insert(args.end(), more.begin(), more.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_phalanx(args);
  std::string out = testing::internal::GetCapturedStdout();
  return {code, std::move(out), testing::internal::GetCapturedStderr()};
}

constexpr const char* kFlags =
    "pretrain --sft --num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 64 "
    "--max-position-embeddings 64 --position-embedding-type rope --swiglu --normalization RMSNorm "
    "--disable-bias-linear --tokenizer-type ByteTokenizer --micro-batch-size 2 --global-batch-size "
    "4 "
    "--train-iters 50 --lr 1e-2 --log-interval 10 --eval-iters 1 --eval-interval 50 --split "
    "90,10,0 "
    "--device cpu --threads 1";

class SftRun : public testing::Test {
 protected:
  SftRun() {
    write_file(folder / "chat.jinja",
               "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }};{% endfor %}"
               "{% if add_generation_prompt %}[a]{% endif %}");
    // Questions are noise that nobody can learn: 26 letters are 3.26 nats each. Answers are always
    // the same.
    SplitMix random(5);
    std::string lines;
    for (int i = 0; i < 60; ++i) {
      std::string question;
      for (int k = 0; k < 12; ++k) question += char('a' + random.below(26));
      lines += R"({"conversations": [{"from": "human", "value": ")" + question +
               R"("}, {"from": "gpt", "value": "fine."}]})" + "\n";
    }
    write_file(folder / "chats.jsonl", lines);
  }

  std::vector<std::string> files() const {
    return {"--data-path", folder / "chats.jsonl", "--chat-template", folder / "chat.jinja"};
  }
  std::vector<std::string> files(std::vector<std::string> more) const {
    std::vector<std::string> all = files();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TempFolder folder;
};

TEST_F(SftRun, LearnsTheAnswersAndNotTheQuestions) {
  for (const char* packing : {"none", "in-order", "first-fit-decreasing"}) {
    const Outcome outcome = run(kFlags, files({"--sft-packing", packing, "--metrics-file",
                                               folder / (std::string(packing) + ".jsonl")}));
    ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
    double loss = 100;
    read_json_lines(folder / (std::string(packing) + ".jsonl"),
                    [&](const nlohmann::json& line, int64_t) {
                      if (line.contains("lm loss")) loss = line.at("lm loss").get<double>();
                    });
    // One letter of noise among the 6 bytes of an answer would be worth 3.26 / 6 = 0.54.
    EXPECT_LT(loss, 0.3) << packing;
  }
}

// A tokenizer.json that Hugging Face's library wrote, with the template in its
// tokenizer_config.json.
TEST_F(SftRun, TakesATokenizerAndItsTemplateFromAFolder) {
  const auto fixture =
      nlohmann::json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers/bpe_qwen2.json"));
  make_folder(folder / "model");
  write_file(folder / "model/tokenizer.json", fixture.at("tokenizer").dump());
  write_file(folder / "model/tokenizer_config.json",
             nlohmann::json{{"bos_token", "<s>"},
                            {"eos_token", "<|end|>"},
                            {"chat_template",
                             "{%- for m in messages %}{{ bos_token + m.role + '\\n' + m.content + "
                             "eos_token }}{%- endfor %}{%- if add_generation_prompt %}"
                             "{{ bos_token + 'assistant\\n' }}{%- endif %}"}}
                 .dump());
  std::string flags = kFlags;
  flags.replace(flags.find("ByteTokenizer"), 13, "HuggingFaceTokenizer");
  const Outcome outcome =
      run(flags, {"--data-path", folder / "chats.jsonl", "--tokenizer-model", folder / "model",
                  "--sft-packing", "in-order", "--metrics-file", folder / "metrics.jsonl"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  std::vector<double> losses;
  read_json_lines(folder / "metrics.jsonl", [&](const nlohmann::json& line, int64_t) {
    if (line.contains("lm loss")) losses.push_back(line.at("lm loss").get<double>());
  });
  // Of 700 tokens at first; in the end the answer is known, of which the end of the turn is part.
  EXPECT_GT(losses.front(), 1.0);
  EXPECT_LT(losses.back(), 0.3);
}

TEST_F(SftRun, SaysWhatItFoundAtTheStart) {
  const Outcome outcome =
      run(kFlags, files({"--sft-packing", "first-fit-decreasing", "--train-iters", "1"}));
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  // A chat is [u] + 12 + ; + [a] + fine. + ; = 25 bytes, of which 6 are learned; two fit into 64.
  EXPECT_THAT(outcome.out, HasSubstr("54 training conversations in 27 samples, 324 of 1,350 tokens "
                                     "learned, 21.9% padding"));
}

TEST_F(SftRun, WrongUsesAreTold) {
  EXPECT_THAT(run(kFlags, files({"--mock-data"})).err, HasSubstr("--mock-data"));
  EXPECT_THAT(run(kFlags, files({"--reset-position-ids"})).err, HasSubstr("--reset-position-ids"));
  EXPECT_THAT(run(kFlags, files({"--sft-tokenizer-prompt-format", "nemotron-h-aligned"})).err,
              HasSubstr("its template is not ours to carry"));
  EXPECT_THAT(run(kFlags, {"--data-path", "0.5", folder / "chats.jsonl", "--chat-template",
                           folder / "chat.jinja"})
                  .err,
              HasSubstr("the weight 0.5 has no meaning here"));
  EXPECT_THAT(run(kFlags, {"--data-path", folder / "chats.jsonl"}).err,
              HasSubstr("messages need a chat template"));
}

TEST_F(SftRun, TheTemplateCommandMarksWhatIsLearned) {
  const Outcome outcome = run("template --chats 1", {"--chat-template", folder / "chat.jinja",
                                                     "--input", folder / "chats.jsonl"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(";[a]【fine.;】\n---\n"));
}

}  // namespace
}  // namespace phx
