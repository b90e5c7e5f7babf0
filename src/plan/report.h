// A plan as text for people.
#pragma once

#include <string>
#include <vector>

#include "phalanx/plan/run_plan.h"

namespace phx {

enum class ByteUnits { human, exact };

// "stage 3: layers 21-28 and 85-92", "embedding, layers 0-6", by pipeline rank.
std::string stage_holds(const Layout& layout, int stage);

// Neighbouring stages whose ranks take the same, to the byte.
struct StageRange {
  int first = 0, last = 0;
};
std::vector<StageRange> equal_stages(const RunPlan& plan);
std::string stage_label(const StageRange& range);  // "3", "1-14"

// Model, ranks and batch in two lines; in a third one experts and the rows they have room for.
std::string plan_heading(const RunConfig& config, const RunPlan& plan, DeviceKind target);
// A row for each kind of rank, a column for each purpose.
std::string memory_of_ranks(const RunPlan& plan, ByteUnits units);
// What of the largest stage lies in host memory; empty where nothing does.
std::string host_memory_of_ranks(const RunPlan& plan, ByteUnits units);
// What a rank takes before its first step: of its device, and of host memory to load a checkpoint.
std::string start_of_ranks(const RunPlan& plan, DeviceKind target, ByteUnits units);
// Bytes sent in a step by group and collective, of the stage that sends most.
std::string communication_of_ranks(const RunPlan& plan, ByteUnits units);
std::string flops_of_step(const RunConfig& config, const RunPlan& plan);

std::string bytes_text(int64_t bytes, ByteUnits units);

}  // namespace phx
