// Layouts on documents with masked losses, positions that begin anew and attention that does not
// cross documents: every stage has to know of them, and ranks count different numbers of tokens.
#include <gtest/gtest.h>

#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"
#include "verify/masked_documents.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Layouts {
  Layouts() {
    write_documents(folder / "documents");
    config.train.fp64 = true;
    config.data.mock_data = false;
    config.data.data_path = {(folder / "documents").string()};
    config.data.split = "8,2";
    config.train.eval_iters = 1;
    config.model.num_layers = 3;
    config.train.global_batch_size = 8;
  }
  void expect_parity(int world) {
    const Parity parity =
        compare(run_layout(config, world), run_layout(on_one_rank(config, world), 1));
    EXPECT_EQ(parity.faults(), std::vector<std::string>{});
  }
  TempFolder folder;
  RunConfig config = tiny_run();
};

TEST(MaskedLayouts, TensorPipelineAndDataParallelMatchOneRank) {
  Layouts layouts;
  DataConfig& data = layouts.config.data;
  data.eod_mask_loss = data.reset_position_ids = data.reset_attention_mask = true;
  ParallelConfig& ranks = layouts.config.parallel;
  ranks.tensor_model_parallel_size = 2;
  ranks.sequence_parallel = true;
  ranks.pipeline_model_parallel_size = 3;  // the middle stage has neither tokens nor labels
  ranks.use_distributed_optimizer = true;
  layouts.expect_parity(12);
}

TEST(MaskedLayouts, LossMasksAloneMatchOneRank) {
  Layouts layouts;
  layouts.config.data.eod_mask_loss = true;
  layouts.config.parallel.pipeline_model_parallel_size = 3;
  layouts.expect_parity(6);
}

TEST(MaskedLayouts, AveragesOverMicroBatchesMatchOneRank) {
  Layouts layouts;
  layouts.config.data.eod_mask_loss = true;
  layouts.config.train.loss_average = LossAverage::micro_batch;
  ParallelConfig& ranks = layouts.config.parallel;
  ranks.tensor_model_parallel_size = 2;
  ranks.sequence_parallel = true;
  ranks.pipeline_model_parallel_size = 3;
  ranks.use_distributed_optimizer = true;
  layouts.expect_parity(12);
  ranks.tensor_model_parallel_size = 1;
  ranks.sequence_parallel = false;
  ranks.pipeline_schedule = "zb-h1";
  ranks.overlap_grad_reduce = true;
  layouts.expect_parity(6);
}

TEST(MaskedLayouts, DocumentsKeptApartMatchOneRankWithLearnedPositions) {
  Layouts layouts;
  layouts.config.data.dataloader_inter_document_masking = true;
  layouts.config.model.position_embedding_type = PositionEmbedding::learned_absolute;
  layouts.config.parallel.tensor_model_parallel_size = 2;
  layouts.config.parallel.sequence_parallel = true;
  layouts.config.parallel.pipeline_model_parallel_size = 2;
  layouts.config.parallel.num_layers_per_virtual_pipeline_stage = {};
  layouts.config.model.num_layers = 4;
  layouts.expect_parity(8);
}

TEST(MaskedLayouts, PositionsThatBeginAnewAloneMatchOneRank) {
  Layouts layouts;
  layouts.config.data.reset_position_ids = true;
  layouts.config.parallel.pipeline_model_parallel_size = 3;
  layouts.expect_parity(6);
}

// Ranks that share a sequence count different numbers of its tokens.
TEST(MaskedLayouts, LossMasksMatchOneRankWhereRanksShareSequences) {
  for (const LossAverage average : {LossAverage::token, LossAverage::micro_batch}) {
    Layouts layouts;
    layouts.config.data.eod_mask_loss = true;
    layouts.config.train.loss_average = average;
    ParallelConfig& ranks = layouts.config.parallel;
    ranks.context_parallel_size = 3;
    ranks.pipeline_model_parallel_size = 3;
    layouts.expect_parity(9);
    ranks.context_parallel_size = 2;
    ranks.tensor_model_parallel_size = 2;
    ranks.sequence_parallel = true;
    ranks.pipeline_model_parallel_size = 1;
    ranks.use_distributed_optimizer = true;
    layouts.expect_parity(8);
  }
}

TEST(MaskedLayouts, PositionsThatBeginAnewMatchOneRankWhereRanksShareSequences) {
  for (const bool learned : {false, true}) {
    Layouts layouts;
    layouts.config.data.reset_position_ids = true;
    if (learned) layouts.config.model.position_embedding_type = PositionEmbedding::learned_absolute;
    ParallelConfig& ranks = layouts.config.parallel;
    ranks.context_parallel_size = 4;
    layouts.expect_parity(4);
    layouts.config.data.reset_attention_mask = layouts.config.data.eod_mask_loss = true;
    ranks.context_parallel_size = 2;
    ranks.tensor_model_parallel_size = 2;
    ranks.sequence_parallel = true;
    layouts.expect_parity(8);
  }
}

}  // namespace
}  // namespace phx
