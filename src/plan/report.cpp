#include "phalanx/plan/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/parallel/expert/dispatch.h"
#include "phalanx/report/memory_table.h"
#include "phalanx/train/num_parameters.h"

namespace phx {

namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the first `left` are flush left, the others right.
std::string aligned(const std::vector<Row>& rows, size_t left) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += i < left ? fmt::format("  {:<{}}", row[i], widths[i])
                       : fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

bool same_memory(const RankPlan& a, const RankPlan& b) {
  return a.memory.at_peak == b.memory.at_peak && a.memory.arena == b.memory.arena &&
         a.memory.reserved == b.memory.reserved;
}

bool used(const RunPlan& plan, int purpose) {
  return std::ranges::any_of(
      plan.stages, [&](const RankPlan& rank) { return rank.memory.at_peak[purpose] > 0; });
}

std::string layer_span(const ChunkPlacement& chunk) {
  const int last = chunk.first_layer + chunk.num_layers - 1;
  return chunk.num_layers == 1 ? str_cat(last) : str_cat(chunk.first_layer, "-", last);
}

// What the shapes of a layer with experts depend on; empty without experts.
std::string experts_heading(const RunConfig& config, const MeshOptions& mesh) {
  const MoeConfig& moe = config.model.moe;
  if (!moe.any()) return "";
  const ExpertParallel ranks{.ep = mesh.ep, .tp = mesh.expert_tp};
  const int64_t tokens =
      config.model.seq_length * config.train.micro_batch_size / (mesh.sizes.tp * mesh.sizes.cp);
  DispatchOptions options{.experts = *moe.num_experts};
  const int64_t worst = expert_rows(tokens, moe.moe_router_topk, ranks, options);
  options.room = moe.moe_expert_rank_capacity_factor;
  const int64_t room = expert_rows(tokens, moe.moe_router_topk, ranks, options);
  const double even = double(ranks.tp * tokens * moe.moe_router_topk);
  std::string text = fmt::format(
      "experts: {} of {} on a rank = EP {} x ETP {}, with room for {} rows of a "
      "micro-batch, {:.4g} x an even share",
      *moe.num_experts / mesh.ep, *moe.num_experts, mesh.ep, mesh.expert_tp, format_thousands(room),
      double(room) / even);
  if (room == worst) return text + ": the worst case\n";
  return text + fmt::format("; the worst case is {:.4g} x\n", double(worst) / even);
}

}  // namespace

std::string bytes_text(int64_t bytes, ByteUnits units) {
  return units == ByteUnits::exact ? format_thousands(bytes) : format_bytes(bytes);
}

std::string stage_holds(const Layout& layout, int stage) {
  std::string layers;
  std::vector<std::string> parts;
  bool embedding = false, loss = false;
  int ahead = 0;
  for (const ChunkPlacement& chunk : layout.placement.ranks.at(size_t(stage))) {
    embedding = embedding || chunk.has_embedding;
    loss = loss || chunk.has_loss;
    ahead += chunk.num_mtp_layers;
    if (chunk.num_layers > 0) layers += (layers.empty() ? "layers " : " ") + layer_span(chunk);
  }
  if (embedding) parts.emplace_back("embedding");
  if (!layers.empty()) parts.push_back(layers);
  if (ahead > 0) parts.push_back(str_cat(ahead, " ahead"));
  if (loss) parts.emplace_back("loss");
  if (parts.empty()) return "nothing";
  std::string all;
  for (const std::string& part : parts) all += (all.empty() ? "" : ", ") + part;
  return all;
}

std::vector<StageRange> equal_stages(const RunPlan& plan) {
  std::vector<StageRange> ranges;
  for (int stage = 0; stage < int(plan.stages.size()); ++stage) {
    const RankPlan& here = plan.stages[size_t(stage)];
    if (stage > 0 && same_memory(here, plan.stages[size_t(stage - 1)]))
      ranges.back().last = stage;
    else
      ranges.push_back({stage, stage});
  }
  return ranges;
}

std::string stage_label(const StageRange& range) {
  return range.first == range.last ? str_cat(range.first) : str_cat(range.first, "-", range.last);
}

std::string plan_heading(const RunConfig& config, const RunPlan& plan, DeviceKind target) {
  const AxisSizes& sizes = plan.layout.mesh.sizes;
  const int64_t batch = config.train.global_batch(sizes.dp), s = config.model.seq_length;
  return str_cat(format_thousands(num_parameters(config.family, config.model)), " parameters in ",
                 model_dtype(config.train.precision()), " on ", name(target), "; ",
                 format_thousands(sizes.world()), sizes.world() == 1 ? " rank" : " ranks", " = TP ",
                 sizes.tp, " x CP ", sizes.cp, " x DP ", sizes.dp, " x PP ", sizes.pp,
                 "\na step: ", format_thousands(batch), " sequences of ", format_thousands(s),
                 " tokens, ", format_thousands(plan.micro_batches), " micro-batches of ",
                 config.train.micro_batch_size, " a rank\n",
                 experts_heading(config, plan.layout.mesh));
}

std::string memory_of_ranks(const RunPlan& plan, ByteUnits units) {
  const std::vector<StageRange> ranges = equal_stages(plan);
  const bool merged = ranges.size() < plan.stages.size();
  Row heading = {"stage", "ranks", merged ? "the first one holds" : "holds"};
  for (int i = 0; i < kNumPurposes; ++i)
    if (used(plan, i)) heading.push_back(name(static_cast<Purpose>(i)));
  heading.insert(heading.end(), {"total", "arena", "taken"});
  std::vector<Row> rows = {heading};
  for (const StageRange& range : ranges) {
    const MemoryReport& memory = plan.stages[size_t(range.first)].memory;
    Row row = {stage_label(range),
               format_thousands(int64_t{plan.ranks_a_stage()} * (range.last - range.first + 1)),
               stage_holds(plan.layout, range.first)};
    for (int i = 0; i < kNumPurposes; ++i)
      if (used(plan, i)) row.push_back(bytes_text(memory.at_peak[i], units));
    for (const int64_t bytes : {memory.peak_total, memory.arena, memory.reserved})
      row.push_back(bytes_text(bytes, units));
    rows.push_back(std::move(row));
  }
  return str_cat(
      "memory of a rank at the peak of a step", units == ByteUnits::exact ? ", in bytes" : "", "\n",
      aligned(rows, 3),
      "  total: in use at the peak; arena: what all of a step's own tensors share; taken: "
      "from the device, arena included\n");
}

std::string host_memory_of_ranks(const RunPlan& plan, ByteUnits units) {
  const auto taken = [](const RankPlan& rank) { return rank.host.reserved(); };
  const HostMemory& host = std::ranges::max_element(plan.stages, {}, taken)->host;
  if (host.reserved() == 0) return "";
  return host_memory_line(host, [&](int64_t bytes) { return bytes_text(bytes, units); }) + "\n";
}

std::string start_of_ranks(const RunPlan& plan, DeviceKind target, ByteUnits units) {
  const auto text = [&](int64_t bytes) { return bytes_text(bytes, units); };
  const auto taken = [](const RankPlan& rank) { return rank.start.device.peak_reserved; };
  const auto most = std::ranges::max_element(plan.stages, {}, taken);
  ListedPieces all;
  for (const RankPlan& rank : plan.stages) {
    all.pieces += rank.start.listed_of_stage.pieces;
    all.blocks += rank.start.listed_of_stage.blocks;
  }
  const int64_t read = most_read_memory(target, LoadFrom::native);
  const int64_t listed = most_manifest_memory(all);
  return fmt::format(
      "to start: stage {} takes up to {} before its first step; loading a checkpoint takes up to "
      "{} of host memory\n  on every rank, {} to read tensors through and {} for a list of up "
      "to {} pieces; an import reads through up to {}\n",
      most - plan.stages.begin(), text(taken(*most)), text(read + listed), text(read), text(listed),
      format_thousands(all.pieces), text(most_read_memory(target, LoadFrom::import)));
}

std::string communication_of_ranks(const RunPlan& plan, ByteUnits units) {
  std::map<std::pair<std::string, CommOp>, std::pair<Traffic, int>> most;  // and the stage
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    for (const auto& [key, traffic] : plan.stages[stage].traffic) {
      if (traffic.bytes_sent == 0) continue;
      const auto [found, made] = most.try_emplace(key, traffic, int(stage));
      if (!made && traffic.bytes_sent > found->second.first.bytes_sent)
        found->second = {traffic, int(stage)};
    }
  }
  if (most.empty()) return "";
  std::vector<Row> rows = {{"group", "collective", "calls", "sent", "stage"}};
  for (const auto& [key, value] : most)
    rows.push_back({key.first, str_cat(key.second), format_thousands(value.first.calls),
                    bytes_text(value.first.bytes_sent, units), str_cat(value.second)});
  return str_cat("what a rank sends in a step, on the stage that sends most",
                 units == ByteUnits::exact ? ", in bytes" : "", "\n", aligned(rows, 2));
}

std::string flops_of_step(const RunConfig& config, const RunPlan& plan) {
  const auto flops = [](const RankPlan& rank) { return rank.cost.flops; };
  const auto [least, most] = std::ranges::minmax_element(plan.stages, {}, flops);
  const double model = training_flops_of_batch(flops_shape(config.model),
                                               config.train.global_batch(plan.layout.mesh.sizes.dp),
                                               config.model.seq_length);
  std::string text = fmt::format("a step computes {:.4g} FLOP on all ranks", plan.flops());
  if (plan.stages.size() > 1)
    text += fmt::format(", from {:.4g} (stage {}) to {:.4g} (stage {}) on one",
                        double(least->cost.flops), least - plan.stages.begin(),
                        double(most->cost.flops), most - plan.stages.begin());
  text += fmt::format("; as Megatron counts them {:.4g}\n", model);
  for (const std::string& line : plan.stages.front().attention) text += line + "\n";
  return text;
}

}  // namespace phx
