// What must hold between the options of a model.
#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/base/option_values.h"
#include "phalanx/kernels/rope_frequencies.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

namespace {

Problem problem(const std::string& name, std::string text, std::string hint) {
  return {ProblemKind::rule, "--" + name, std::move(text), std::move(hint)};
}

void check_head_size(const OptionSet& options, Problems& problems) {
  if (!options.active("kv-channels") && !options.active("multi-latent-attention")) {
    divides("num-attention-heads", "hidden-size").check(options, problems);
  }
}

void check_query_groups(const OptionSet& options, Problems& problems) {
  const auto groups = static_cast<int64_t>(options.number("num-query-groups").value_or(0));
  const auto heads = static_cast<int64_t>(options.number("num-attention-heads").value_or(0));
  if (groups < 1 || heads < 1) return;
  if (options.active("group-query-attention")) {
    if (heads % groups == 0) return;
    std::string fitting;
    for (int64_t g = 1; g <= heads; ++g) {
      if (heads % g == 0) fitting += str_cat(fitting.empty() ? "" : ", ", g);
    }
    problems.push_back(problem(
        "num-query-groups",
        str_cat("--num-query-groups ", groups, " does not divide --num-attention-heads ", heads),
        str_cat("these do: ", fitting)));
  } else if (options.active("num-query-groups") && groups != 1 && groups != heads) {
    problems.push_back(problem(
        "num-query-groups",
        str_cat("--num-query-groups ", groups, " has no effect without --group-query-attention"),
        "add --group-query-attention, or leave --num-query-groups out"));
  }
}

void check_pattern(const char* name, const OptionSet& options, Problems& problems) {
  const std::string value = options.text(name);
  const auto layers = static_cast<int64_t>(options.number("num-layers").value_or(0));
  if (value == "none" || layers < 1) return;
  const FrequencyPattern pattern = FrequencyPattern::parse(value);
  const auto entries = static_cast<int64_t>(pattern.list.size());
  if (!pattern.is_list() || entries == layers) return;
  problems.push_back(problem(name,
                             str_cat("--", name, " ", pattern.text(), " has ", entries,
                                     " entries, but --num-layers is ", layers),
                             "a list has one entry a layer"));
}

void check_yarn(const OptionSet& options, Problems& problems) {
  const std::string type = options.text("position-embedding-type");
  if (type == "yarn" && !options.active("yarn-original-max-position-embeddings")) {
    problems.push_back(problem("yarn-original-max-position-embeddings",
                               "--position-embedding-type yarn requires "
                               "--yarn-original-max-position-embeddings: YaRN stretches from there",
                               "it is the context length that the model was first trained with"));
  }
  for (const char* name : {"use-rope-scaling", "rotary-base-local", "no-rope-freq"}) {
    if (!options.active(name) || type == "rope" || type == "yarn") continue;
    problems.push_back(problem(
        name, str_cat(shown(options, name), " has no effect with --position-embedding-type ", type),
        "use --position-embedding-type rope"));
  }
  if (type == "yarn" && options.active("use-rope-scaling")) {
    problems.push_back(problem("use-rope-scaling",
                               "--use-rope-scaling and --position-embedding-type yarn exclude each "
                               "other: both stretch the rotary frequencies",
                               "keep one of the two"));
  }
}

void check_vocabulary(const OptionSet& options, Problems& problems) {
  const auto padded = options.number("padded-vocab-size"), size = options.number("vocab-size");
  if (!padded || !size || *padded >= *size) return;
  problems.push_back(problem(
      "padded-vocab-size",
      str_cat(shown(options, "padded-vocab-size"), " is less than ", shown(options, "vocab-size")),
      "leave --padded-vocab-size out, and it is computed"));
}

void check_qk_norm(const OptionSet& options, Problems& problems) {
  const std::string norm = options.text("normalization");
  if (!options.active("qk-layernorm") || norm == "RMSNorm") return;
  problems.push_back(problem(
      "qk-layernorm", str_cat("--qk-layernorm needs --normalization RMSNorm, but it is ", norm),
      "use --normalization RMSNorm, or leave --qk-layernorm out"));
}

void check_window(const OptionSet& options, Problems& problems) {
  const std::string value = options.text("window-size");
  if (value == "none") return;
  const WindowSize window = WindowSize::parse(value);
  if (window.right <= 0) return;
  problems.push_back(problem("window-size",
                             str_cat("--window-size ", window.text(), " looks ", window.right,
                                     " keys ahead, but attention is causal: the right number "
                                     "should be 0 or -1"),
                             str_cat("use --window-size ", window.left, ",0")));
}

bool rotates(const OptionSet& options) {
  const std::string type = options.text("position-embedding-type");
  return type == "rope" || type == "yarn";
}

// The sizes as far as they are known; none while one of the three that have no default is missing.
std::optional<TransformerConfig> sizes(const OptionSet& options) {
  const auto integer = [&](const char* name) -> std::optional<int64_t> {
    const auto value = options.number(name);
    return value ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
  };
  TransformerConfig config;
  config.num_layers = integer("num-layers").value_or(0);
  config.hidden_size = integer("hidden-size").value_or(0);
  config.num_attention_heads = integer("num-attention-heads").value_or(0);
  if (config.num_layers < 1 || config.hidden_size < 1 || config.num_attention_heads < 1) return {};
  config.ffn_hidden_size = integer("ffn-hidden-size");
  config.kv_channels = integer("kv-channels");
  config.group_query_attention = options.active("group-query-attention");
  config.num_query_groups = integer("num-query-groups").value_or(1);
  config.vocab_size = integer("vocab-size").value_or(1);
  config.padded_vocab_size = integer("padded-vocab-size");
  config.make_vocab_size_divisible_by = integer("make-vocab-size-divisible-by").value_or(1);
  config.max_position_embeddings = integer("max-position-embeddings").value_or(0);
  config.rotary_percent = options.number("rotary-percent").value_or(1);
  config.swiglu = options.active("swiglu");
  config.geglu = options.active("geglu");
  config.untie_embeddings_and_output_weights =
      options.active("untie-embeddings-and-output-weights");
  if (rotates(options)) config.position_embedding_type = PositionEmbedding::rope;
  return config;
}

void check_mlp_width(const OptionSet& options, Problems& problems) {
  const std::optional<TransformerConfig> config = sizes(options);
  if (!config || config->ffn_size() > 0) return;
  problems.push_back(problem(
      "ffn-hidden-size",
      str_cat(config->swiglu ? "--swiglu" : "--geglu", " with --hidden-size ", config->hidden_size,
              " makes an MLP of width 0: 8/3 of it, rounded down to a multiple of 64"),
      "set --ffn-hidden-size, or use a --hidden-size of 24 or more"));
}

void check_rotated_channels(const OptionSet& options, Problems& problems) {
  const std::optional<TransformerConfig> config = sizes(options);
  if (!rotates(options) || !config || options.active("multi-latent-attention")) return;
  const int64_t d = config->head_dim(), heads = config->num_attention_heads;
  const bool given = config->kv_channels.has_value();
  if (!given && config->hidden_size % heads != 0) return;  // told already
  const std::string source = given ? str_cat("--kv-channels ", d)
                                   : str_cat("--hidden-size ", config->hidden_size,
                                             " / --num-attention-heads ", heads, " = ", d);
  if (d % 2 != 0) {
    problems.push_back(problem(given ? "kv-channels" : "hidden-size",
                               str_cat(source, " is odd, but rotation takes channels in pairs"),
                               given ? nearest_multiples(d, 2)
                                     : str_cat(nearest_multiples(config->hidden_size, 2 * heads),
                                               " as a --hidden-size with even heads")));
  } else if (config->rotary_dim() < 2) {
    const double least = std::ceil(2e4 / static_cast<double>(d)) / 1e4;
    problems.push_back(
        problem("rotary-percent",
                str_cat(shown(options, "rotary-percent"), " of ", source,
                        " leaves no pair of channels to rotate"),
                str_cat("use ", least, " or more, or --position-embedding-type none")));
  }
}

// In doubles: they do not overflow, and a count near the limit needs no last digit.
struct ParameterCount {
  double a_layer = 0, rest = 0;
};

ParameterCount count_parameters(const TransformerConfig& config) {
  const auto h = static_cast<double>(config.hidden_size),
             d = static_cast<double>(config.head_dim());
  const auto heads = static_cast<double>(config.num_attention_heads);
  const double f = static_cast<double>(config.ffn_size()) * (config.gated() ? 3 : 2);
  const double tables = config.untie_embeddings_and_output_weights ? 2 : 1;
  const double positions =
      config.has_position_table() ? static_cast<double>(config.max_position_embeddings) : 0;
  return {h * (2 * d * (heads + static_cast<double>(config.query_groups())) + f),
          h * (tables * static_cast<double>(config.padded_vocab()) + positions)};
}

void check_parameters(const OptionSet& options, Problems& problems) {
  constexpr double kMost = 35184372088832.0;  // 2^45: offsets in bytes stay far from 2^63
  const std::optional<TransformerConfig> config = sizes(options);
  if (!config) return;
  const ParameterCount count = count_parameters(*config);
  const double all = static_cast<double>(config->num_layers) * count.a_layer + count.rest;
  if (all < kMost) return;
  const auto fitting = static_cast<int64_t>((kMost - count.rest) / count.a_layer);
  problems.push_back(
      problem("num-layers",
              str_cat(shown(options, "num-layers"), " of ", shown(options, "hidden-size"),
                      " and --ffn-hidden-size ", config->ffn_size(), " make about ", all,
                      " parameters; a model has fewer than 2^45, about 3.5e13"),
              fitting >= 1 ? str_cat("up to ", fitting, " such layers fit")
                           : "a single such layer, or the vocabulary, is too large already"));
}

}  // namespace

std::vector<Rule> transformer_rules() {
  std::vector<Rule> rules = {
      {"--hidden-size is a multiple of --num-attention-heads, unless --kv-channels is given",
       check_head_size},
      {"--num-query-groups divides --num-attention-heads", check_query_groups},
      at_most("seq-length", "max-position-embeddings"),
      at_most_one({"swiglu", "geglu", "squared-relu", "openai-gelu"},
                  "an MLP has one activation function"),
      requires_option("window-attn-skip-freq", "window-size", "it says which layers have a window"),
      requires_option("rotary-base-local", "window-size", "it is for layers with a window"),
      {"--window-attn-skip-freq has one entry a layer",
       [](const OptionSet& o, Problems& p) { check_pattern("window-attn-skip-freq", o, p); }},
      {"--no-rope-freq has one entry a layer",
       [](const OptionSet& o, Problems& p) { check_pattern("no-rope-freq", o, p); }},
      {"what concerns rotation needs --position-embedding-type rope or yarn", check_yarn},
      {"--padded-vocab-size is at least --vocab-size", check_vocabulary},
      {"--qk-layernorm needs --normalization RMSNorm", check_qk_norm},
      requires_option("qk-layernorm-all-heads", "qk-layernorm",
                      "it says over which channels q and k are normalised"),
      {"--window-size looks back only: its right number is 0 or -1", check_window},
      below("rope-scaling-low-freq-factor", "rope-scaling-high-freq-factor"),
      below("yarn-beta-slow", "yarn-beta-fast"),
      {"with rotation --kv-channels is even, and --rotary-percent leaves at least 2 of them",
       check_rotated_channels},
      {"a width of the MLP that follows from --hidden-size is not 0", check_mlp_width},
      {"the model has fewer than 2^45 parameters", check_parameters},
  };
  for (const std::vector<Rule>& more : {moe_rules(), latent_rules()})
    rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace phx
