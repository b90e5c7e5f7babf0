#include <gtest/gtest.h>

#include "phalanx/train/layout.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

std::vector<std::string> texts(const RunConfig& config, int64_t world) {
  std::vector<std::string> lines;
  for (const Problem& problem : layout_problems(config.layout(), world))
    lines.push_back(problem.text + " | " + problem.hint);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LayoutProblems, TheRanksAreAMultipleOfOneCopyOfTheModel) {
  RunConfig config = tiny_run();
  config.parallel.tensor_model_parallel_size = 2;
  config.train.global_batch_size = 8;
  EXPECT_EQ(texts(config, 4), Lines{});
  EXPECT_EQ(texts(config, 5)[0],
            "there are 5 ranks, which is not a multiple of TP 2 x PP 1 x CP 1 = 2 | 4 and 6 are "
            "the nearest that are");
}

TEST(LayoutProblems, TheGlobalBatchIsAMultipleOfMicroBatchAndDataRanks) {
  RunConfig config = tiny_run();  // 6 samples, 2 a micro-batch
  EXPECT_EQ(texts(config, 3), Lines{});
  EXPECT_EQ(texts(config, 2),
            Lines{"--global-batch-size 6 is not a multiple of --micro-batch-size 2 x data parallel "
                  "2 = 4 | 4 and 8 are the nearest that are"});
}

TEST(LayoutProblems, EverySizeOfABatchScheduleFitsTheRanks) {
  RunConfig config = tiny_run();  // 24 tokens a sample, 2 samples a micro-batch
  config.train.global_batch_size = {};
  config.train.step_batch_size_schedule = "0:4 1K:8 2K:12";
  EXPECT_EQ(texts(config, 2), Lines{});
  EXPECT_EQ(texts(config, 3),
            (Lines{"--step-batch-size-schedule: size 4 is not a multiple of --micro-batch-size 2 x "
                   "data parallel 3 = 6 | 6 is the nearest that is",
                   "--step-batch-size-schedule: size 8 is not a multiple of --micro-batch-size 2 x "
                   "data parallel 3 = 6 | 6 and 12 are the nearest that are"}));
  config.train.step_batch_size_schedule = "0:4 30:8 40:12";
  EXPECT_EQ(texts(config, 2),
            Lines{"--step-batch-size-schedule: \"30:8\" and \"40:12\" begin with the same sample, "
                  "number 1 of --seq-length 24 | leave one of them out"});
}

TEST(LayoutProblems, EverySizeOfABatchScheduleCanBeInterleaved) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  config.train.global_batch_size = {};
  config.train.step_batch_size_schedule = "0:4 1K:8";
  EXPECT_EQ(texts(config, 2), Lines{});
  config.train.step_batch_size_schedule = "0:2 1K:6 2K:8";
  const Lines lines = texts(config, 2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "1 micro-batches a step are too few to interleave over --pipeline-model-parallel-size "
            "2: at least 2 are needed | larger global batches, of 2 micro-batches a rank, or no "
            "virtual stages");
  EXPECT_TRUE(lines[1].starts_with("3 micro-batches a step in groups of 2")) << lines[1];
}

TEST(LayoutProblems, ABatchIsRoundedDownButNotToNothing) {
  RunConfig config = tiny_run();  // 6 samples
  config.train.decrease_batch_size_if_needed = true;
  EXPECT_EQ(texts(config, 2), Lines{});
  EXPECT_EQ(texts(config, 4), Lines{"--global-batch-size 6 cannot be decreased to a multiple of "
                                    "--micro-batch-size 2 x data parallel 4 = 8 | "
                                    "8 is the nearest that is"});
}

TEST(LayoutProblems, TensorRanksDivideHeadsAndWidths) {
  RunConfig config = tiny_run();
  config.parallel.tensor_model_parallel_size = 3;
  const Lines lines = texts(config, 3);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "--num-attention-heads 4 is not a multiple of --tensor-model-parallel-size 3 | 3 and 6 "
            "are the nearest that are; or TP 1, 2, 4");
  EXPECT_EQ(lines[1],
            "--num-query-groups 2 and --tensor-model-parallel-size 3: neither is a multiple of the "
            "other | 3 is the nearest that is, or a divisor of 3");
}

TEST(LayoutProblems, SequenceParallelismNeedsTensorRanksThatDivideTheSequence) {
  RunConfig config = tiny_run();
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(texts(config, 1),
            Lines{"--sequence-parallel cuts the sequence over the tensor-parallel ranks, but "
                  "--tensor-model-parallel-size is 1 | leave it out, or use "
                  "--tensor-model-parallel-size 2"});
  config.parallel.tensor_model_parallel_size = 2;
  config.model.seq_length = 23;
  EXPECT_EQ(texts(config, 2).size(), 1u);
}

TEST(LayoutProblems, StagesShareTheLayersAndInterleavingNeedsMicroBatches) {
  RunConfig config = tiny_run();  // 3 layers
  config.parallel.pipeline_model_parallel_size = 2;
  EXPECT_EQ(texts(config, 2).size(), 1u) << "3 layers on 2 stages";
  config.model.num_layers = 4;
  EXPECT_EQ(texts(config, 2), Lines{});
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(texts(config, 2).size(), 1u) << "3 micro-batches in groups of 2";
  config.train.global_batch_size = 8;
  EXPECT_EQ(texts(config, 2), Lines{});
  config.parallel.pipeline_schedule = "zb-h1";
  EXPECT_EQ(texts(config, 2),
            Lines{"--pipeline-schedule zb-h1 has one chunk a pipeline rank, not 2 | leave out the "
                  "virtual stages, or use --pipeline-schedule 1f1b"});
}

TEST(LayoutProblems, AStringOfSeveralStagesNeedsAPipeline) {
  RunConfig config = tiny_run();
  config.parallel.pipeline_model_parallel_layout = "Et|ttL";
  EXPECT_EQ(texts(config, 1), Lines{"--pipeline-model-parallel-layout \"Et|ttL\" has 2 stages, but "
                                    "--pipeline-model-parallel-size is 1 | leave it out, or set "
                                    "--pipeline-model-parallel-size to a divisor of 2 above 1"});
}

TEST(LayoutProblems, EverythingWrongIsToldAtOnce) {
  RunConfig config = tiny_run();
  config.parallel.tensor_model_parallel_size = 3;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 2;
  config.model.seq_length = 25;
  EXPECT_GE(texts(config, 7).size(), 5u);
}

TEST(LayoutProblems, ASharedExpertIsCutEvenly) {
  RunConfig config = tiny_run();
  config.model.moe.num_experts = 4;
  config.model.moe.moe_shared_expert_intermediate_size = 50;
  config.parallel.tensor_model_parallel_size = 4;
  config.parallel.sequence_parallel = true;
  EXPECT_EQ(texts(config, 4),
            Lines{"--moe-shared-expert-intermediate-size 50 is not a multiple of "
                  "--tensor-model-parallel-size 4 | 48 and 52 are the nearest that are; or TP 1, "
                  "2, 5, 10"});
}

}  // namespace
}  // namespace phx
