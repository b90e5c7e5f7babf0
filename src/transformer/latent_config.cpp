#include "phalanx/transformer/latent_config.h"

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"

namespace phx {

namespace {

Problem problem(const std::string& name, std::string text, std::string hint) {
  return {ProblemKind::rule, "--" + name, std::move(text), std::move(hint)};
}

int64_t integer(const OptionSet& options, const char* name) {
  return int64_t(options.number(name).value_or(0));
}

void check_needs_latents(const OptionSet& options, Problems& problems) {
  if (options.active("multi-latent-attention")) return;
  // A checkpoint's options name every size, at its default in models of other kinds.
  const LatentConfig usual;
  const std::pair<const char*, int64_t> sizes[] = {
      {"q-lora-rank", 0},
      {"kv-lora-rank", usual.kv_lora_rank},
      {"qk-head-dim", usual.qk_head_dim},
      {"qk-pos-emb-head-dim", usual.qk_pos_emb_head_dim},
      {"v-head-dim", usual.v_head_dim},
      {"rope-type", 1},
  };
  for (const auto& [name, value] : sizes)
    if (options.active(name) && integer(options, name) != value)
      problems.push_back(
          problem(name, shown(options, name) + " has no effect without --multi-latent-attention",
                  str_cat("add --multi-latent-attention, or leave --", name, " out")));
}

void check_excluded(const OptionSet& options, Problems& problems) {
  if (!options.active("multi-latent-attention")) return;
  // --kv-channels stands in Megatron's own scripts of such models and says nothing there either.
  const std::pair<const char*, const char*> others[] = {
      {"group-query-attention", "every query head has a key head of its own"},
      {"add-qkv-bias", "its projections have no biases"},
      {"rotary-interleaved", "its rotated channels always come in pairs side by side"},
      {"qk-layernorm-all-heads", "--qk-layernorm normalises its latent vectors"},
  };
  for (const auto& [name, why] : others)
    if (options.active(name))
      problems.push_back(problem(
          name,
          str_cat(shown(options, name), " and --multi-latent-attention exclude each other: ", why),
          str_cat("leave --", name, " out")));
  const std::string type = options.text("position-embedding-type");
  if (type != "rope" && type != "yarn")
    problems.push_back(problem("position-embedding-type",
                               str_cat("--multi-latent-attention has rotary positions, but "
                                       "--position-embedding-type is ",
                                       type),
                               "use --position-embedding-type rope"));
}

void check_sizes(const OptionSet& options, Problems& problems) {
  if (!options.active("multi-latent-attention")) return;
  constexpr int64_t kMost = 256;  // channels of a head that attention takes
  const int64_t plain = integer(options, "qk-head-dim"),
                turned = integer(options, "qk-pos-emb-head-dim"),
                value = integer(options, "v-head-dim");
  if (turned % 2 != 0)
    problems.push_back(problem(
        "qk-pos-emb-head-dim",
        str_cat("--qk-pos-emb-head-dim ", turned, " is odd, but rotation takes channels in pairs"),
        nearest_multiples(turned, 2)));
  if (plain + turned > kMost)
    problems.push_back(problem(
        "qk-head-dim",
        str_cat("--qk-head-dim ", plain, " + --qk-pos-emb-head-dim ", turned, " = ", plain + turned,
                " channels a head; attention takes up to ", kMost),
        str_cat("with this --qk-pos-emb-head-dim --qk-head-dim may be up to ", kMost - turned)));
  if (value > plain + turned)
    problems.push_back(
        problem("v-head-dim",
                str_cat("--v-head-dim ", value, " is more than --qk-head-dim ", plain,
                        " + --qk-pos-emb-head-dim ", turned, " = ", plain + turned,
                        ": value heads may not be wider than query heads"),
                str_cat("up to ", plain + turned, " are possible")));
}

void check_stretching(const OptionSet& options, Problems& problems) {
  if (!options.active("multi-latent-attention")) return;
  const bool by_type = options.text("position-embedding-type") == "yarn";
  const bool stretched = options.number("rotary-scaling-factor").value_or(1) != 1;
  if (options.text("rope-type") == "rope") {
    if (by_type || stretched)
      problems.push_back(
          problem("rope-type",
                  str_cat("--rope-type rope rotates without stretching, but ",
                          by_type ? "--position-embedding-type is yarn"
                                  : shown(options, "rotary-scaling-factor") + " stretches"),
                  "use --rope-type yarn"));
    return;
  }
  if (by_type || !stretched || options.active("yarn-original-max-position-embeddings")) return;
  problems.push_back(
      problem("yarn-original-max-position-embeddings",
              shown(options, "rotary-scaling-factor") +
                  " requires --yarn-original-max-position-embeddings: YaRN stretches from there",
              "it is the context length that the model was first trained with; DeepSeek-V3: 4096"));
}

}  // namespace

std::vector<Rule> latent_rules() {
  return {
      {"flags of latent attention need --multi-latent-attention", check_needs_latents},
      {"latent attention has head sizes and positions of its own", check_excluded},
      {"heads of latent attention: even rotated channels, at most 256, values no wider than keys",
       check_sizes},
      {"YaRN of latent attention needs the length before the stretching", check_stretching},
  };
}

}  // namespace phx
