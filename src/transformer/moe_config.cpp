#include "phalanx/transformer/moe_config.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/base/option_rules.h"

namespace phx {

bool MoeConfig::has_experts(int64_t layer) const {
  if (!any()) return false;
  if (!moe_layer_freq) return true;
  return moe_layer_freq->is_list() ? moe_layer_freq->list.at(size_t(layer)) != 0
                                   : layer % moe_layer_freq->every == 0;
}

double MoeConfig::coefficient(const std::string& type) const {
  for (size_t i = 0; i < moe_router_load_balancing_type.size(); ++i)
    if (moe_router_load_balancing_type[i] == type && i < moe_aux_loss_coeff.size())
      return moe_aux_loss_coeff[i];
  return 0;
}

namespace {

Problem problem(const std::string& name, std::string text, std::string hint) {
  return {ProblemKind::rule, "--" + name, std::move(text), std::move(hint)};
}

std::string divisors(int64_t n) {
  std::string list;
  for (int64_t i = 1; i <= n; ++i)
    if (n % i == 0) list += str_cat(list.empty() ? "" : ", ", i);
  return list;
}

// So many of `groups` groups of `size` experts can give `topk` experts, as many from each; or all
// groups, which is no limit.
bool gives_choices(int64_t used, int64_t topk, int64_t groups, int64_t size) {
  return used == groups || (used < groups && topk % used == 0 && topk / used <= size);
}

int64_t integer(const OptionSet& options, const char* name, int64_t otherwise) {
  return int64_t(options.number(name).value_or(double(otherwise)));
}

void check_needs_experts(const OptionSet& options, Problems& problems) {
  if (options.active("num-experts")) return;
  for (const char* name :
       {"moe-ffn-hidden-size", "moe-layer-freq", "moe-z-loss-coeff", "moe-router-pre-softmax",
        "moe-router-topk-scaling-factor", "moe-router-num-groups", "moe-router-group-topk",
        "moe-router-group-best", "moe-router-force-load-balancing", "moe-expert-capacity-factor",
        "moe-pad-expert-input-to-capacity", "moe-expert-rank-capacity-factor",
        "moe-shared-expert-intermediate-size", "moe-shared-expert-gate",
        "moe-router-enable-expert-bias", "moe-router-dtype", "moe-per-layer-logging"})
    if (options.active(name))
      problems.push_back(problem(
          name, shown(options, name) + " has no effect without --num-experts: there are no experts",
          str_cat("add --num-experts, or leave --", name, " out")));
}

void check_choice(const OptionSet& options, Problems& problems) {
  if (!options.active("num-experts")) return;
  const int64_t experts = integer(options, "num-experts", 1);
  const int64_t topk = integer(options, "moe-router-topk", 2);
  if (topk > experts)
    problems.push_back(problem("moe-router-topk",
                               str_cat("--moe-router-topk ", topk, " is more than --num-experts ",
                                       experts, ": a token's experts are different ones"),
                               str_cat("1 to ", experts, " are possible")));
  const bool sigmoid = options.text("moe-router-score-function") == "sigmoid";
  const bool before = options.active("moe-router-pre-softmax");
  if (topk == 1 && !sigmoid && !before)
    problems.push_back(problem(
        "moe-router-topk",
        "--moe-router-topk 1 needs --moe-router-pre-softmax: the softmax over one chosen expert is "
        "1, whatever the router says, and it would learn nothing",
        "add --moe-router-pre-softmax"));
}

void check_bias(const OptionSet& options, Problems& problems) {
  if (!options.active("moe-router-enable-expert-bias") ||
      options.text("moe-router-score-function") == "sigmoid")
    return;
  problems.push_back(problem("moe-router-enable-expert-bias",
                             "--moe-router-enable-expert-bias needs --moe-router-score-function "
                             "sigmoid: scores that do not depend on each other",
                             "add --moe-router-score-function sigmoid"));
}

// Groups that are ranked by a number of scores that is given hold any number of a token's experts.
void check_ranked_groups(const OptionSet& options, int64_t size, Problems& problems) {
  const int64_t topk = integer(options, "moe-router-topk", 2);
  const int64_t used = integer(options, "moe-router-group-topk", 1);
  const int64_t groups = integer(options, "moe-router-num-groups", 1);
  const int64_t best = integer(options, "moe-router-group-best", 1);
  if (best > size)
    problems.push_back(problem("moe-router-group-best",
                               str_cat("--moe-router-group-best ", best, " is more than the ", size,
                                       " experts of a group"),
                               str_cat("1 to ", size)));
  if (used > groups || topk > used * size)
    problems.push_back(
        problem("moe-router-group-topk",
                str_cat("--moe-router-group-topk ", used, " of ", groups, " groups of ", size,
                        " experts cannot give --moe-router-topk ", topk, " experts"),
                str_cat(ceil_div(topk, size), " to ", groups)));
}

void check_groups(const OptionSet& options, Problems& problems) {
  if (!options.active("num-experts")) return;
  if (!options.active("moe-router-num-groups")) {
    if (options.active("moe-router-group-best"))
      problems.push_back(problem("moe-router-group-best",
                                 "--moe-router-group-best has no effect without "
                                 "--moe-router-num-groups: there are no groups to rank",
                                 "add --moe-router-num-groups and --moe-router-group-topk"));
    return;
  }
  const int64_t experts = integer(options, "num-experts", 1);
  const int64_t topk = integer(options, "moe-router-topk", 2);
  const int64_t groups = integer(options, "moe-router-num-groups", 1);
  if (experts % groups != 0) {
    problems.push_back(problem(
        "moe-router-num-groups",
        str_cat("--moe-router-num-groups ", groups, " does not divide --num-experts ", experts),
        str_cat("these do: ", divisors(experts))));
    return;
  }
  const int64_t size = experts / groups;
  std::string fitting;
  for (int64_t used = 1; used <= groups; ++used)
    if (gives_choices(used, topk, groups, size))
      fitting += str_cat(fitting.empty() ? "" : ", ", used);
  if (!options.active("moe-router-group-topk")) {
    problems.push_back(problem("moe-router-group-topk",
                               "--moe-router-num-groups requires --moe-router-group-topk: it says "
                               "how many of the groups a token may use",
                               str_cat("these would do: ", fitting)));
    return;
  }
  const int64_t used = integer(options, "moe-router-group-topk", 1);
  if (used == groups) return;  // all of them: no limit
  if (options.active("moe-router-group-best")) return check_ranked_groups(options, size, problems);
  if (!gives_choices(used, topk, groups, size))
    problems.push_back(problem("moe-router-group-topk",
                               str_cat("--moe-router-group-topk ", used, " groups of ", size,
                                       " experts cannot give --moe-router-topk ", topk,
                                       " experts, as many from each group"),
                               str_cat("these would do: ", fitting)));
}

void check_coefficients(const OptionSet& options, Problems& problems) {
  const auto count = [&](const char* name) {
    const std::string text = options.text(name);
    return 1 + std::ranges::count(text, ' ');
  };
  const auto types = count("moe-router-load-balancing-type"), values = count("moe-aux-loss-coeff");
  if (types == values || !options.active("moe-aux-loss-coeff")) return;
  problems.push_back(problem(
      "moe-aux-loss-coeff",
      str_cat("--moe-aux-loss-coeff has ", values, " values for ", types, " kinds of balancing"),
      "give one coefficient for each --moe-router-load-balancing-type"));
}

void check_experts_layers(const OptionSet& options, Problems& problems) {
  if (!options.active("num-experts")) return;
  if (options.text("add-bias-linear") == "true")
    problems.push_back(problem("num-experts",
                               "--num-experts needs --disable-bias-linear: experts have no biases",
                               "add --disable-bias-linear"));
  if (options.active("post-layernorms"))
    problems.push_back(problem("post-layernorms",
                               "--post-layernorms and --num-experts exclude each other: no known "
                               "model has both",
                               "leave one of the two out"));
  const std::string freq = options.text("moe-layer-freq");
  const auto layers = integer(options, "num-layers", 0);
  if (freq == "none" || layers < 1) return;
  const FrequencyPattern pattern = FrequencyPattern::parse(freq);
  if (!pattern.is_list() || int64_t(pattern.list.size()) == layers) return;
  problems.push_back(problem("moe-layer-freq",
                             str_cat("--moe-layer-freq ", pattern.text(), " has ",
                                     pattern.list.size(), " entries, but --num-layers is ", layers),
                             "a list has one entry a layer"));
}

// With all-gather nobody on the host knows how many rows there are, so that too many could not be
// told.
void check_room(const OptionSet& options, Problems& problems) {
  if (!options.active("moe-expert-rank-capacity-factor") ||
      options.text("moe-token-dispatcher-type") == "alltoall")
    return;
  problems.push_back(problem("moe-expert-rank-capacity-factor",
                             "--moe-expert-rank-capacity-factor needs --moe-token-dispatcher-type "
                             "alltoall, which counts rows before they are sent",
                             "add --moe-token-dispatcher-type alltoall, or leave it out: there is "
                             "room for the worst case then"));
}

}  // namespace

std::vector<Rule> moe_rules() {
  return {
      {"--moe flags need --num-experts", check_needs_experts},
      {"a token's experts are different ones, and the router can learn", check_choice},
      {"--moe-router-enable-expert-bias needs sigmoid scores", check_bias},
      {"groups of experts divide them, and hold a token's experts evenly", check_groups},
      {"every kind of balancing has a coefficient", check_coefficients},
      {"layers with experts", check_experts_layers},
      {"--moe-expert-rank-capacity-factor needs the all-to-all dispatcher", check_room},
      requires_option("moe-pad-expert-input-to-capacity", "moe-expert-capacity-factor",
                      "it says how many tokens an expert takes"),
      requires_option("moe-shared-expert-gate", "moe-shared-expert-intermediate-size",
                      "there is no shared expert to gate"),
  };
}

}  // namespace phx
