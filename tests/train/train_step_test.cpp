// --loss-average micro-batch: gradients of the mean over micro-batches of their means, as Megatron
// without --calculate-per-token-loss.
#include "phalanx/train/train_step.h"

#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "support/gradients.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

RunConfig exact_run(LossAverage average) {
  RunConfig config = tiny_run();
  config.train.fp64 = true;
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  config.model.untie_embeddings_and_output_weights = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 4;
  config.train.loss_average = average;
  return config;
}

// One row of 24 tokens, of which the first `count` have a label.
struct Row {
  std::vector<int64_t> tokens, labels;
  int64_t count = 0;
};

Row row(int64_t seed, int64_t count) {
  Row made{.count = count};
  for (int64_t i = 0; i < 24; ++i) {
    made.tokens.push_back((i * 7 + seed) % 61);
    made.labels.push_back(i < count ? (i * 11 + 3 * seed) % 61 : -100);
  }
  return made;
}

class OneRun {
 public:
  explicit OneRun(LossAverage average) : session_(exact_run(average), runtime_.device()) {}

  // One step on these micro-batches with a learning rate of 0: the loss that is reported.
  double step(const std::vector<Row>& rows) {
    std::vector<Batch> batches;
    std::vector<int64_t> counts;
    for (const Row& one : rows) {
      const auto column = [&](const std::vector<int64_t>& ids) {
        return from_ints(ids, {24, 1}, DType::i64, runtime_.device());
      };
      batches.push_back(
          {.tensors = {{"tokens", column(one.tokens)}, {"labels", column(one.labels)}}});
      counts.push_back(one.count);
    }
    session_.step.run(batches, counts, 0, {.lr = 0});
    const StepResults results = session_.step.collect();
    return results.loss_sum / std::max(results.tokens, 1.0);
  }
  std::vector<double> gradients() { return to_values(session_.store.gradients()); }
  Tensor weights() { return session_.store.weights(); }
  FlatRange range_of(const std::string& name) {
    return session_.store
        .ranges([&](const Parameter& p) { return p.name().find(name) != std::string::npos; })
        .at(0);
  }

 private:
  Runtime runtime_{{.threads = 2}};
  Session session_;
};

const std::vector<Row> kRows = {row(1, 24), row(2, 3), row(3, 0), row(4, 11)};

// The gradient of a micro-batch alone is that of its mean, whichever average is taken.
TEST(LossAverage, GradientsAreTheMeanOfTheMicroBatchesOwn) {
  OneRun together(LossAverage::micro_batch), apart(LossAverage::token);
  const double loss = together.step(kRows);
  const std::vector<double> found = together.gradients();
  std::vector<double> wanted(found.size(), 0.0);
  double sum = 0;
  for (const Row& one : kRows) {
    if (one.count == 0) continue;  // adds nothing, but counts among the four
    sum += apart.step({one}) * double(one.count);
    const std::vector<double> part = apart.gradients();
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += part[i] / 4;
  }
  double largest = 0, different = 0;
  apart.step(kRows);
  const std::vector<double> by_token = apart.gradients();
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    different = std::max(different, std::abs(found[i] - by_token[i]));
    ASSERT_NEAR(found[i], wanted[i], 1e-13);  // sums of gradients below 1, in fp64
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_GT(different, 0.1 * largest);  // the other average has other gradients
  // What is reported is the mean over tokens, as in Megatron's log.
  EXPECT_NEAR(loss, sum / (24 + 3 + 11), 1e-13);
}

TEST(LossAverage, GradientsMatchFiniteDifferences) {
  OneRun run(LossAverage::micro_batch), one(LossAverage::token);
  run.step(kRows);
  const std::vector<double> gradients = run.gradients();
  auto* weights = one.weights().data<double>();
  const auto loss = [&] {
    double mean = 0;
    for (const Row& part : kRows)
      if (part.count > 0) mean += one.step({part}) / 4;
    return mean;
  };
  for (const char* name : {"word_embeddings", "linear_qkv.weight", "linear_fc2", "output_layer"}) {
    const FlatRange range = one.range_of(name);
    const int64_t at = range.offset + range.count / 7;
    const double before = weights[at], h = 1e-5;
    weights[at] = before + h;
    const double above = loss();
    weights[at] = before - h;
    const double below = loss();
    weights[at] = before;
    // The error of the difference is h^2 times a third derivative, and rounding / h: 1e-10.
    EXPECT_NEAR(gradients[size_t(at)], (above - below) / (2 * h), 1e-8) << name;
  }
}

// An output layer of zeros gives 61 tokens the same probability, and equal inputs give equal hidden
// vectors h. Micro-batches of one label 5 and of three labels 9: by micro-batch label 5 weighs 1/2
// and label 9 three times 1/6; by token 1/4 and three times 1/4. So rows of the output layer's
// gradient are h (1/61 - 1/2) twice and h / 61 else; by token h (1/61 - 1/4) and h (1/61 - 3/4).
TEST(LossAverage, ThreeTokensWeighAsMuchAsOne) {
  Row first{.tokens = std::vector<int64_t>(24, 7), .labels = std::vector<int64_t>(24, -100)};
  Row second = first;
  first.labels[3] = 5, first.count = 1;
  second.labels[0] = second.labels[8] = second.labels[20] = 9, second.count = 3;
  const auto ratios = [&](LossAverage average) {
    OneRun run(average);
    const FlatRange range = run.range_of("output_layer");
    Tensor output = run.weights().rows(range.offset, range.count);
    set_zero(output);
    run.step({first, second});
    const std::vector<double> all = run.gradients();
    const double* rows = all.data() + range.offset;  // [64, 32]
    return std::pair(rows[5 * 32] / rows[0], rows[9 * 32] / rows[0]);
  };
  const auto [five, nine] = ratios(LossAverage::micro_batch);
  EXPECT_NEAR(five, 1 - 61 / 2.0, 1e-9);
  EXPECT_NEAR(nine, 1 - 61 / 2.0, 1e-9);
  const auto [five_by_token, nine_by_token] = ratios(LossAverage::token);
  EXPECT_NEAR(five_by_token, 1 - 61 / 4.0, 1e-9);
  EXPECT_NEAR(nine_by_token, 1 - 61 * 3 / 4.0, 1e-9);
}

// Megatron evaluates chats by the mean of micro-batches, everything else by tokens.
TEST(LossAverage, ChatsAreEvaluatedByMicroBatch) {
  const TempFolder folder;
  std::string lines;
  for (size_t i = 0; i < 20; ++i)
    lines +=
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ")" +
        std::string(1 + i * 7 % 19, char('a' + i)) + "\"}]}\n";
  write_file(folder / "chats.jsonl", lines);
  const auto evaluated = [&](LossAverage average, int64_t micro_batches, int64_t first,
                             int64_t batches, bool chats) {
    RunConfig config = exact_run(average);
    config.train.global_batch_size = micro_batches;
    if (chats) {
      config.model.vocab_size = 257;
      config.sft.sft = true;
      config.sft.sft_tokenizer_prompt_format = "identity";
      config.data.mock_data = false;
      config.data.tokenizer_type = "ByteTokenizer";
      config.data.data_path = {folder / "chats.jsonl"};
      config.data.split = "1,1";
    }
    Runtime runtime({.threads = 2});
    Session session(config, runtime.device());
    return session.step.evaluate(*session.valid_batches, first, batches).value();
  };
  double mean = 0;
  for (int64_t k = 0; k < 6; ++k) mean += evaluated(LossAverage::token, 1, k, 1, true) / 6;
  EXPECT_NEAR(evaluated(LossAverage::micro_batch, 3, 0, 2, true), mean, 1e-13);
  EXPECT_GT(std::abs(evaluated(LossAverage::token, 3, 0, 2, true) - mean), 1e-4);
  EXPECT_EQ(evaluated(LossAverage::micro_batch, 3, 0, 2, false),
            evaluated(LossAverage::token, 3, 0, 2, false));
}

}  // namespace
}  // namespace phx
