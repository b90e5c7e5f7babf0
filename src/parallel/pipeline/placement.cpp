#include "phalanx/parallel/pipeline/placement.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/parallel/pipeline/layout_string.h"

namespace phx {
namespace {

constexpr const char* kLayers = "--num-layers";
constexpr const char* kStages = "--pipeline-model-parallel-size";
constexpr const char* kChunks = "--num-virtual-stages-per-pipeline-rank";
constexpr const char* kLayersPerChunk = "--num-layers-per-virtual-pipeline-stage";
constexpr const char* kFirst = "--decoder-first-pipeline-num-layers";
constexpr const char* kLast = "--decoder-last-pipeline-num-layers";
constexpr const char* kEmbedding = "--account-for-embedding-in-pipeline-split";
constexpr const char* kLoss = "--account-for-loss-in-pipeline-split";
constexpr const char* kLayout = "--pipeline-model-parallel-layout";
constexpr const char* kMtp = "--mtp-num-layers";

// The pieces in the order in which a micro-batch visits them, with their sizes.
using Pieces = std::vector<ChunkPlacement>;

void report(Problems& problems, const char* flag, std::string text, std::string hint) {
  problems.push_back({ProblemKind::rule, flag, std::move(text), std::move(hint)});
}

// "4 and 8": the divisors of `value` next to `wanted`, which is none.
std::string nearest_divisors(int value, int wanted) {
  int below = 1, above = 0;
  for (int d = 1; d <= value; ++d) {
    if (value % d != 0) continue;
    if (d < wanted) below = d;
    if (d > wanted && above == 0) above = d;
  }
  return above == 0 ? str_cat(below) : str_cat(below, " and ", above);
}

// "28 and 33", the multiples of `unit` around `value`, less what is no layer of the model.
std::string nearest_layers(int value, int unit, int extra) {
  const int below = value / unit * unit - extra, above = below + unit;
  return below < 1 ? str_cat(above) : str_cat(below, " and ", above);
}

std::string counted(int n, const char* thing) { return str_cat(n, " ", thing, n == 1 ? "" : "s"); }

int extra_layers(const PlacementConfig& config) {
  return (config.account_for_embedding ? 1 : 0) + (config.account_for_loss ? 1 : 0);
}

// "--num-layers 30 + 1 for the embedding"
std::string counted_layers(const PlacementConfig& config) {
  std::string text = str_cat(kLayers, " ", config.num_layers);
  if (config.account_for_embedding) text += " + 1 for the embedding";
  if (config.account_for_loss) text += " + 1 for the loss";
  if (extra_layers(config) > 0) text += str_cat(" = ", config.num_layers + extra_layers(config));
  return text;
}

void check_sizes(const PlacementConfig& config, Problems& problems) {
  const auto positive = [&](const char* flag, std::optional<int> value, int least) {
    if (!value || *value >= least) return;
    report(problems, flag, str_cat(flag, " ", *value, " should be at least ", least),
           str_cat("use ", least, " or more"));
  };
  positive(kLayers, config.num_layers, 1);
  positive(kStages, config.stages, 1);
  positive(kChunks, config.chunks, 1);
  positive(kLayersPerChunk, config.layers_per_chunk, 1);
  positive(kFirst, config.first_stage_layers, 1);
  positive(kLast, config.last_stage_layers, 1);
  positive(kMtp, config.num_mtp_layers, 0);
}

// There are four ways to say how layers are cut; they do not mix.
void check_exclusions(const PlacementConfig& config, Problems& problems) {
  struct Given {
    const char* flag;
    bool given;
  };
  const Given chunks[] = {{kChunks, config.chunks != 1},
                          {kLayersPerChunk, config.layers_per_chunk.has_value()}};
  const Given uneven[] = {{kFirst, config.first_stage_layers.has_value()},
                          {kLast, config.last_stage_layers.has_value()}};
  const Given counted[] = {{kEmbedding, config.account_for_embedding},
                           {kLoss, config.account_for_loss}};
  const Given layout[] = {{kLayout, !config.layout.empty()}};
  const auto exclude = [&](std::span<const Given> a, std::span<const Given> b, const char* why) {
    for (const Given& x : a)
      for (const Given& y : b)
        if (x.given && y.given && x.flag != y.flag)
          report(problems, x.flag, str_cat(x.flag, " and ", y.flag, " exclude each other: ", why),
                 str_cat("leave out ", y.flag));
  };
  exclude(layout, chunks, "the layout's number of stages says how many chunks a rank has");
  exclude(layout, uneven, "the layout says which layers each stage has");
  exclude(layout, counted, "the layout says which layers each stage has");
  exclude(uneven, counted, "both say how many layers the first and last stage have");
  exclude(std::span(chunks, 1), std::span(chunks + 1, 1), "both say how many chunks a rank has");
  exclude(std::span(chunks + 1, 1), uneven, "stages of several sizes have chunks of several sizes");
  for (const Given& x : {chunks[0], chunks[1], uneven[0], uneven[1]})
    if (config.stages == 1 && x.given)
      report(problems, x.flag, str_cat(x.flag, " needs several stages, but ", kStages, " is 1"),
             str_cat("leave out ", x.flag, ", or set ", kStages, " to 2 or more"));
}

// The layers of a rank, `layers`, are cut into V equal chunks.
bool check_chunks(const char* whose, int layers, int chunks, Problems& problems) {
  if (layers % chunks == 0) return true;
  report(problems, kChunks,
         str_cat(whose, " ", layers, " layers are not a multiple of ", kChunks, " ", chunks),
         str_cat(nearest_divisors(layers, chunks), " chunks would do, or stages of ",
                 nearest_layers(layers, chunks, 0), " layers"));
  return false;
}

Pieces even_pieces(const PlacementConfig& config, Problems& problems) {
  const int extra = extra_layers(config), total = config.num_layers + extra;
  if (total % config.stages != 0) {
    report(problems, kLayers,
           str_cat(counted_layers(config), " is not a multiple of ", kStages, " ", config.stages),
           str_cat(nearest_layers(total, config.stages, extra), " layers would do, or ",
                   nearest_divisors(total, config.stages), " stages"));
    return {};
  }
  const int per_stage = total / config.stages;
  int chunks = config.chunks;
  if (config.layers_per_chunk) {
    if (per_stage % *config.layers_per_chunk != 0) {
      report(problems, kLayersPerChunk,
             str_cat("the ", per_stage, " layers of a stage are not a multiple of ",
                     kLayersPerChunk, " ", *config.layers_per_chunk),
             str_cat(nearest_divisors(per_stage, *config.layers_per_chunk), " would do"));
      return {};
    }
    chunks = per_stage / *config.layers_per_chunk;
  }
  if (!check_chunks("a stage's", per_stage, chunks, problems)) return {};
  Pieces pieces(config.stages * chunks, {.num_layers = per_stage / chunks});
  if (config.account_for_embedding) --pieces.front().num_layers;
  if (config.account_for_loss) --pieces.back().num_layers;
  return pieces;
}

Pieces uneven_pieces(const PlacementConfig& config, Problems& problems) {
  const int first = config.first_stage_layers.value_or(0),
            last = config.last_stage_layers.value_or(0);
  const int given = (first > 0 ? 1 : 0) + (last > 0 ? 1 : 0);
  const int rest = config.num_layers - first - last, others = config.stages - given;
  std::string sum = str_cat(kLayers, " ", config.num_layers);
  if (first > 0) sum += str_cat(" - ", kFirst, " ", first);
  if (last > 0) sum += str_cat(" - ", kLast, " ", last);
  const auto refuse = [&](const std::string& rule, int below, int above) {
    const auto layers = below > first + last ? str_cat(below, " and ", above) : str_cat(above);
    report(problems, kLayers, str_cat(sum, " leaves ", counted(rest, "layer"), " ", rule),
           str_cat(layers, " layers would do"));
  };
  if (others == 0 && rest != 0) {
    report(problems, kLayers,
           str_cat(sum, " leaves ", counted(rest, "layer"), ", but no stage is between"),
           str_cat("use ", kLayers, " ", first + last, ", or more stages"));
    return {};
  }
  if (others > 0 && (rest <= 0 || rest % others != 0)) {
    const int below = rest > 0 ? rest / others * others : 0;
    refuse(str_cat("for the other ", counted(others, "stage"), ", which share them evenly"),
           below > 0 ? first + last + below : 0, first + last + below + others);
    return {};
  }
  const int middle = others > 0 ? rest / others : 0;
  if ((first > 0 && !check_chunks("the first stage's", first, config.chunks, problems)) ||
      (last > 0 && !check_chunks("the last stage's", last, config.chunks, problems)) ||
      !check_chunks("a middle stage's", middle, config.chunks, problems))
    return {};
  Pieces pieces;
  for (int chunk = 0; chunk < config.chunks; ++chunk)
    for (int rank = 0; rank < config.stages; ++rank) {
      const bool is_first = rank == 0 && first > 0, is_last = rank == config.stages - 1 && last > 0;
      pieces.push_back({.num_layers = (is_first  ? first
                                       : is_last ? last
                                                 : middle) /
                                      config.chunks});
    }
  return pieces;
}

int count(const std::string& tokens, char token) {
  return static_cast<int>(std::count(tokens.begin(), tokens.end(), token));
}

// The stage with m has a copy of the embedding. A rank has one copy, so it holds no other stage
// that may need one: not the first, and not L.
void check_mtp_stage(const PlacementConfig& config, const std::vector<std::string>& stages,
                     Problems& problems) {
  const auto found = std::ranges::find_if(stages, [](auto& s) { return count(s, 'm') > 0; });
  const auto stage = int(found - stages.begin());
  const int last = int(stages.size()) - 1, rank = stage % config.stages;
  if (stage == 0 || stage == last) return;
  const auto refuse = [&](const std::string& rule) {
    report(problems, kLayout, str_cat(kLayout, " \"", config.layout, "\" ", rule),
           "put m into the stage with L");
  };
  if (rank == 0 || rank == last % config.stages)
    refuse(str_cat("has m in stage ", stage, ", on pipeline rank ", rank,
                   ", which has the embedding or the loss in another stage"));
  else if (config.position_table)
    refuse("has m in a stage without L, but learned positions can be shared by two stages only");
}

// The rules on what the stages of a layout hold, seen as one row of tokens: E t..t m..m L.
void check_layout(const PlacementConfig& config, const std::vector<std::string>& stages,
                  Problems& problems) {
  const std::string row = std::accumulate(stages.begin(), stages.end(), std::string());
  const auto refuse = [&](const std::string& rule, const std::string& hint) {
    report(problems, kLayout, str_cat(kLayout, " \"", config.layout, "\" ", rule), hint);
  };
  const auto expect = [&](char token, int wanted, const std::string& rule) {
    const int found = count(row, token);
    if (found != wanted)
      refuse(str_cat("has ", found, " ", token, ", but ", rule),
             found < wanted ? str_cat("add ", wanted - found, " ", token)
                            : str_cat("remove ", found - wanted, " ", token));
  };
  const size_t before = problems.size();
  expect('E', 1, "a model has one embedding");
  expect('L', 1, "a model has one loss");
  expect('t', config.num_layers, str_cat(kLayers, " is ", config.num_layers));
  expect('m', config.num_mtp_layers, str_cat(kMtp, " is ", config.num_mtp_layers));
  const int n = static_cast<int>(stages.size());
  if (config.stages == 1 && n > 1)
    refuse(str_cat("has ", n, " stages, but ", kStages, " is 1"),
           str_cat("leave it out, or set ", kStages, " to a divisor of ", n, " above 1"));
  if (n % config.stages != 0)
    refuse(str_cat("has ", n, " stages, not a multiple of ", kStages, " ", config.stages),
           nearest_multiples(n, config.stages));
  if (problems.size() != before) return;  // the rules below assume the counts
  if (stages.front().find('E') != 0) refuse("does not begin with E", "move E to the front");
  if (stages.back().empty() || stages.back().back() != 'L')
    refuse("does not end with L", "move L to the end");
  if (config.num_mtp_layers > 0 && row.rfind('t') > row.find('m'))
    refuse("has t after m", "put all m after the last t");
  if (std::count_if(stages.begin(), stages.end(), [](auto& s) { return count(s, 'm') > 0; }) > 1)
    refuse("has m in several stages", "put all m into one stage");
  if (config.num_mtp_layers > 0 && problems.size() == before)
    check_mtp_stage(config, stages, problems);
}

Pieces layout_pieces(const PlacementConfig& config, Problems& problems) {
  std::vector<std::string> stages;
  try {
    stages = parse_layout(config.layout);
  } catch (const Error& error) {
    report(problems, kLayout, error.what(), "");
    return {};
  }
  check_layout(config, stages, problems);
  Pieces pieces;
  for (const std::string& stage : stages)
    pieces.push_back({.num_layers = count(stage, 't'), .num_mtp_layers = count(stage, 'm')});
  return pieces;
}

Pieces make_pieces(const PlacementConfig& config, Problems& problems) {
  check_sizes(config, problems);
  check_exclusions(config, problems);
  if (!problems.empty()) return {};  // what follows divides by the sizes
  if (!config.layout.empty()) return layout_pieces(config, problems);
  Pieces pieces = config.first_stage_layers || config.last_stage_layers
                      ? uneven_pieces(config, problems)
                      : even_pieces(config, problems);
  if (!pieces.empty()) pieces.back().num_mtp_layers = config.num_mtp_layers;
  return pieces;
}

}  // namespace

std::vector<int> ChunkPlacement::layers() const {
  std::vector<int> result(num_layers);
  std::iota(result.begin(), result.end(), first_layer);
  return result;
}

std::optional<int> Placement::mtp_stage() const {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const ChunkPlacement& chunk : ranks[rank])
      if (chunk.num_mtp_layers > 0) return int(rank);
  return std::nullopt;
}

bool Placement::behind_mtp(int rank, int chunk) const {
  const int piece = chunk * stages + rank;
  for (int before = 0; before < piece; ++before)
    if (at(before % stages, before / stages).num_mtp_layers > 0) return true;
  return false;
}

std::vector<int> Placement::embedding_stages(bool tied) const {
  std::set<int> holders{0};
  if (const auto stage = mtp_stage()) holders.insert(*stage);
  if (tied) holders.insert(stages - 1);
  return {holders.begin(), holders.end()};
}

Problems placement_problems(const PlacementConfig& config) {
  Problems problems;
  make_pieces(config, problems);
  return problems;
}

Placement place_layers(const PlacementConfig& config) {
  Problems problems;
  Pieces pieces = make_pieces(config, problems);
  std::string text;
  for (const Problem& problem : problems) {
    text += (text.empty() ? "" : "\n") + problem.text;
    if (!problem.hint.empty()) text += "\n  hint: " + problem.hint;
  }
  PHX_CHECK(problems.empty(), text);

  pieces.front().has_embedding = true;
  pieces.back().has_loss = true;
  Placement placement{.stages = config.stages,
                      .chunks = static_cast<int>(pieces.size()) / config.stages,
                      .ranks = {}};
  placement.ranks.resize(config.stages);
  int layer = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].first_layer = layer;
    layer += pieces[i].num_layers;
    placement.ranks[i % config.stages].push_back(pieces[i]);
  }
  return placement;
}

}  // namespace phx
