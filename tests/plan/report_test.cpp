#include "phalanx/plan/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/countable_run.h"

namespace phx {
namespace {

using phx::testing::countable_run;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(PlanReport, SaysWhatAStageHolds) {
  RunConfig config = countable_run();
  config.model.num_layers = 8;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  const Layout layout = make_layout(config.layout(), 2);
  EXPECT_EQ(stage_holds(layout, 0), "embedding, layers 0-1 4-5");
  EXPECT_EQ(stage_holds(layout, 1), "layers 2-3 6-7, loss");
}

TEST(PlanReport, ExactBytesAreThoseOfTheAllocator) {
  const RunPlan plan = plan_run(countable_run(), 1, {});
  const std::string table = memory_of_ranks(plan, ByteUnits::exact);
  EXPECT_THAT(table, HasSubstr("  361,216"));
  EXPECT_THAT(table, HasSubstr("  1,806,080"));
  EXPECT_THAT(communication_of_ranks(plan, ByteUnits::exact), "");
}

TEST(PlanReport, StagesOfEmbeddingOrLossAloneAreNamed) {
  RunConfig config = countable_run();
  config.model.num_layers = 2;
  config.parallel.pipeline_model_parallel_size = 4;
  config.parallel.pipeline_model_parallel_layout = "E|t||tL";
  Layout layout = make_layout(config.layout(), 4);
  EXPECT_EQ(stage_holds(layout, 0), "embedding");
  EXPECT_EQ(stage_holds(layout, 1), "layers 0");
  EXPECT_EQ(stage_holds(layout, 2), "nothing");
  EXPECT_EQ(stage_holds(layout, 3), "layers 1, loss");
  layout.placement =
      place_layers({.num_layers = 2, .stages = 3, .layout = "Et|tmm|L", .num_mtp_layers = 2});
  EXPECT_EQ(stage_holds(layout, 1), "layers 1, 2 ahead");
  EXPECT_EQ(stage_holds(layout, 2), "loss");
}

// Three stages, of which the last two take the same.
RunPlan three_stages() {
  RunConfig config = countable_run();
  config.model.num_layers = 3;
  config.parallel.pipeline_model_parallel_size = 3;
  RunPlan plan{.layout = make_layout(config.layout(), 3)};
  plan.stages.resize(3);
  plan.stages[0].memory.at_peak[0] = 4096;
  plan.stages[0].memory.peak_total = 4096;
  for (size_t i : {1, 2}) plan.stages[i].memory.at_peak[0] = 1024;
  return plan;
}

TEST(PlanReport, NeighboursThatTakeTheSameAreOneRow) {
  const RunPlan plan = three_stages();
  const std::vector<StageRange> ranges = equal_stages(plan);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(stage_label(ranges[0]), "0");
  EXPECT_EQ(stage_label(ranges[1]), "1-2");
  const std::string table = memory_of_ranks(plan, ByteUnits::exact);
  EXPECT_THAT(table, HasSubstr("the first one holds"));
  EXPECT_THAT(table, HasSubstr("4,096"));
}

TEST(PlanReport, TrafficIsOfTheStageThatSendsMost) {
  RunPlan plan = three_stages();
  plan.stages[0].traffic[{"tp", CommOp::all_reduce}] = {.calls = 3, .bytes_sent = 10};
  plan.stages[2].traffic[{"tp", CommOp::all_reduce}] = {.calls = 4, .bytes_sent = 2000};
  plan.stages[1].traffic[{"tp", CommOp::barrier}] = {.calls = 9, .bytes_sent = 0};
  const std::string text = communication_of_ranks(plan, ByteUnits::exact);
  EXPECT_THAT(text, ::testing::ContainsRegex("tp +all_reduce +4 +2,000 +2\n"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("barrier"))) << "what sends nothing is left out";
}

TEST(PlanReport, AStartIsOfTheStageThatTakesMostAndOfAllPieces) {
  RunPlan plan = three_stages();
  plan.stages[1].start.device.peak_reserved = 4096;
  for (RankPlan& stage : plan.stages) stage.start.listed_of_stage = {.pieces = 1000, .blocks = 0};
  const std::string text = start_of_ranks(plan, DeviceKind::cuda, ByteUnits::exact);
  EXPECT_THAT(text, HasSubstr("to start: stage 1 takes up to 4,096 before its first step"));
  EXPECT_THAT(text, HasSubstr("3,900,000 for a list of up to 3,000 pieces"));
}

TEST(PlanReport, TheHeadingHasModelRanksAndBatch) {
  const RunConfig config = countable_run();
  EXPECT_EQ(plan_heading(config, plan_run(config, 2, {}), DeviceKind::cuda),
            "180,608 parameters in bf16 on cuda; 2 ranks = TP 1 x CP 1 x DP 2 x PP 1\n"
            "a step: 8 sequences of 24 tokens, 4 micro-batches of 1 a rank\n");
}

TEST(PlanReport, TheHeadingSaysForHowManyRowsARanksExpertsHaveRoom) {
  RunConfig config = countable_run();
  config.model.moe.num_experts = 8;
  const auto heading = [&](int world) {
    return plan_heading(config, RunPlan{.layout = make_layout(config.layout(), world)},
                        DeviceKind::cuda);
  };
  EXPECT_THAT(heading(1),
              EndsWith("experts: 8 of 8 on a rank = EP 1 x ETP 1, with room for 48 rows "
                       "of a micro-batch, 1 x an even share: the worst case\n"));
  config.parallel.expert_model_parallel_size = 4;
  EXPECT_THAT(heading(4),
              EndsWith("experts: 2 of 8 on a rank = EP 4 x ETP 1, with room for 192 rows "
                       "of a micro-batch, 4 x an even share: the worst case\n"));
  config.model.moe.moe_token_dispatcher_type = TokenDispatcherType::alltoall;
  config.model.moe.moe_expert_rank_capacity_factor = 1.5;
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.sequence_parallel = true;
  // 12 of the 24 tokens on a rank, two copies of each, and rows of two tensor-parallel ranks.
  EXPECT_THAT(heading(8),
              EndsWith("experts: 2 of 8 on a rank = EP 4 x ETP 2, with room for 72 rows "
                       "of a micro-batch, 1.5 x an even share; the worst case is 4 x\n"));
}

TEST(PlanReport, BytesAreForPeopleOrExact) {
  EXPECT_EQ(bytes_text(1536, ByteUnits::exact), "1,536");
  EXPECT_EQ(bytes_text(int64_t{3} << 29, ByteUnits::human), "1.50 GiB");
}

}  // namespace
}  // namespace phx
