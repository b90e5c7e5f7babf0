#include "phalanx/verify/proof_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/large_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = ParityEntry::Kind;

TEST(ProofText, SaysProvedOrWhatDiffers) {
  SmallRun small = shrink(large_run(), kWorld);
  const RunConfig one = on_one_rank(small.config, small.world);
  const LayoutOutcome many = run_layout(small.config, small.world);
  const std::string proved = proof_text(compare(many, run_layout(one, 1)), small.world, false);
  EXPECT_THAT(proved, HasSubstr("proved: 16 ranks compute what one rank computes"));
  EXPECT_THAT(proved, HasSubstr("the worst of them\n"));

  // A layout that computes something else: here because one rank has another norm.
  RunConfig other = one;
  other.model.norm_epsilon = 1e-4;
  const std::string wrong = proof_text(compare(many, run_layout(other, 1)), small.world, true);
  EXPECT_THAT(wrong, HasSubstr("not proved: 16 ranks do not compute what one rank computes\n"));
  EXPECT_THAT(wrong,
              HasSubstr("  gradient of decoder.final_layernorm.weight in step 1 differs by"));
  EXPECT_THAT(wrong, Not(HasSubstr("more; --verbose")));
}

TEST(ProofText, TheTableHasTheWorstOfEveryKindAndStep) {
  const Parity parity{.entries = {{Kind::gradient, 2, "a", 3e-11},
                                  {Kind::gradient, 2, "b", 2e-11},
                                  {Kind::gradient, 1, "a", 1e-12},
                                  {Kind::loss, 1, "", 1e-15}}};
  const std::string text = proof_text(parity, 4, false);
  EXPECT_THAT(text, HasSubstr("step 1      step 2\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("  gradients +1.0e-12     3.0e-11\n"));
  EXPECT_THAT(text, HasSubstr("proved: 4 ranks compute what one rank computes; nothing differs by "
                              "more than 3.0e-11 of its largest value (limit 1e-10)\n"));
  EXPECT_THAT(text, Not(HasSubstr("router"))) << "there is none";
}

TEST(ProofText, TheTableOfAModelWithExpertsHasItsRoutersAndBuffers) {
  const Parity parity{.entries = {{Kind::buffer, 2, "expert_bias", 3e-11},
                                  {Kind::router, 1, "z_loss of layer 1", 2e-11}}};
  const std::string text = proof_text(parity, 4, false);
  EXPECT_THAT(text, ::testing::ContainsRegex("  loads and router losses +2.0e-11     0.0e.00\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("  experts' biases and loads +3.0e-11\n"));
}

TEST(ProofText, FaultsBeyondTwentyAreCountedUnlessAllAreWanted) {
  Parity parity;
  for (int i = 0; i < 23; ++i)
    parity.entries.push_back({Kind::weight, 1, "w" + std::to_string(i), 1.0});
  EXPECT_THAT(proof_text(parity, 2, false), HasSubstr("  and 3 more; --verbose lists them\n"));
  EXPECT_THAT(proof_text(parity, 2, false), Not(HasSubstr("w20 after step 1 differs")));
  EXPECT_THAT(proof_text(parity, 2, true), HasSubstr("w22 after step 1 differs"));
}

TEST(ProofText, AResumeIsProvedByItsCountsOrRefutedByItsFaults) {
  ResumeProof proof{.tensors = 7, .bytes = 2048, .losses = {1, 2, 3}};
  EXPECT_EQ(resume_text(proof),
            "proved: losses and norms of 3 iterations and 7 tensors of 2.00 KiB, weights and "
            "optimizer state, are the same to the byte\n");
  proof.skipped_iterations = 2;
  EXPECT_THAT(resume_text(proof), HasSubstr("3 iterations (2 skipped) and"));
  proof.faults = {"a differs"};
  EXPECT_EQ(resume_text(proof), "not proved: a stop in the middle changes the run\n  a differs\n");
}

}  // namespace
}  // namespace phx
