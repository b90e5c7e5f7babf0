// What the flags of ranks come to for a world of a given size: the axes of the mesh, which layers a
// rank holds, in which order a pipeline works. Pure functions of the configs: every rank, the
// planner and the prover ask here.
#pragma once

#include <functional>

#include "phalanx/parallel/mesh.h"
#include "phalanx/parallel/parallel_config.h"
#include "phalanx/parallel/pipeline/placement.h"
#include "phalanx/parallel/pipeline/schedule_kind.h"
#include "phalanx/train/context_layout.h"
#include "phalanx/train/train_config.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

struct LayoutConfig {
  const TransformerConfig& model;
  const ParallelConfig& parallel;
  const TrainConfig& train;
  const std::vector<ScheduleKind> schedules = standard_schedule_kinds();  // of the catalogue
};

// Ranks that share an expert's matrices: ETP.
int64_t expert_tensor_ranks(const ParallelConfig& parallel);
// The fewest ranks on which a layout can run: one copy of the model, or several if its experts are
// shared by more ranks than that.
int64_t fewest_ranks(const ParallelConfig& parallel);
// Ranks of one copy of the model: TP x PP x CP.
int64_t model_ranks(const ParallelConfig& parallel);
int64_t data_parallel_size(const ParallelConfig& parallel, int64_t world);

// Everything that keeps `world` ranks from training this model, each with the nearest values that
// work. What would need a flag that is not `known` is left out; by default all are.
Problems layout_problems(const LayoutConfig& config, int64_t world, const KnownFlag& known = {});

struct Layout {
  MeshOptions mesh;
  Placement placement;
  // Of a step of that many micro-batches a data-parallel rank.
  Schedule train_schedule(int64_t micro_batches) const;
  Schedule evaluate_schedule(int64_t micro_batches) const;

  ScheduleKind kind;
  int group_size = 0, receive_ahead = 1;

 private:
  ScheduleConfig schedule_config(int64_t micro_batches) const;
};
// Throws an Error with all problems.
Layout make_layout(const LayoutConfig& config, int64_t world);

}  // namespace phx
