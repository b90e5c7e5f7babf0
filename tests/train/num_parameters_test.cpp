#include "phalanx/train/num_parameters.h"

#include <gtest/gtest.h>

#include "train/tiny_run.h"

namespace phx {
namespace {

using testing::tiny_run;

TEST(NumParameters, AreThoseThatAreCountedByHand) {
  RunConfig run = tiny_run();
  // h 32, 4 heads of 8 over 2 groups, f 48, 61 words, 3 layers.
  const int64_t attention = 32 + (32 + 2 * 16) * 32 + 2 * 8 + 32 * 32;  // norm, qkv, qk norms, out
  const int64_t mlp = 32 + 2 * 48 * 32 + 48 * 32;                       // norm, gate | up, down
  const int64_t embedding = 61 * 32;                                    // without its padding
  const int64_t expected = embedding + 3 * (attention + mlp) + 32;
  EXPECT_EQ(num_parameters(run.family, run.model), expected);
  run.model.untie_embeddings_and_output_weights = true;
  EXPECT_EQ(num_parameters(run.family, run.model), expected + embedding);
}

TEST(NumParameters, DoNotDependOnThePadding) {
  RunConfig run = tiny_run();
  const int64_t padded = num_parameters(run.family, run.model);
  run.model.make_vocab_size_divisible_by = 1;
  EXPECT_EQ(num_parameters(run.family, run.model), padded);
}

}  // namespace
}  // namespace phx
