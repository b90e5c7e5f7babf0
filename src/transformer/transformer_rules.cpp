// What must hold between the options of a model.
#include <cmath>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

namespace {

Problem problem(const std::string& name, std::string text, std::string hint) {
  return {ProblemKind::rule, "--" + name, std::move(text), std::move(hint)};
}

void check_head_size(const TransformerConfig& config, const OptionSet& options,
                     Problems& problems) {
  if (config.kv_channels || config.latent.any()) return;
  divides("num-attention-heads", "hidden-size").check(options, problems);
}

void check_query_groups(const TransformerConfig& config, Problems& problems) {
  const int64_t groups = config.num_query_groups, heads = config.num_attention_heads;
  if (config.group_query_attention) {
    if (heads % groups == 0) return;
    std::string fitting;
    for (int64_t g = 1; g <= heads; ++g) {
      if (heads % g == 0) fitting += str_cat(fitting.empty() ? "" : ", ", g);
    }
    problems.push_back(problem(
        "num-query-groups",
        str_cat("--num-query-groups ", groups, " does not divide --num-attention-heads ", heads),
        str_cat("these do: ", fitting)));
  } else if (groups != 1 && groups != heads) {
    problems.push_back(problem(
        "num-query-groups",
        str_cat("--num-query-groups ", groups, " has no effect without --group-query-attention"),
        "add --group-query-attention, or leave --num-query-groups out"));
  }
}

void check_pattern(const char* name, const std::optional<FrequencyPattern>& pattern, int64_t layers,
                   Problems& problems) {
  if (!pattern || !pattern->is_list()) return;
  const auto entries = static_cast<int64_t>(pattern->list.size());
  if (entries == layers) return;
  problems.push_back(problem(name,
                             str_cat("--", name, " ", pattern->text(), " has ", entries,
                                     " entries, but --num-layers is ", layers),
                             "a list has one entry a layer"));
}

bool rotates(const TransformerConfig& config) {
  return config.position_embedding_type == PositionEmbedding::rope ||
         config.position_embedding_type == PositionEmbedding::yarn;
}

void check_rotation(const TransformerConfig& config, const OptionSet& options, Problems& problems) {
  const bool yarn = config.position_embedding_type == PositionEmbedding::yarn;
  if (yarn && !options.active("yarn-original-max-position-embeddings")) {
    problems.push_back(problem("yarn-original-max-position-embeddings",
                               "--position-embedding-type yarn requires "
                               "--yarn-original-max-position-embeddings: YaRN stretches from there",
                               "it is the context length that the model was first trained with"));
  }
  for (const auto& [name, is_set] :
       {std::pair("use-rope-scaling", config.use_rope_scaling),
        std::pair("rotary-base-local", config.rotary_base_local.has_value()),
        std::pair("no-rope-freq", config.no_rope_freq.has_value())}) {
    if (!is_set || rotates(config)) continue;
    problems.push_back(problem(name,
                               str_cat(shown(options, name), " has no effect with ",
                                       shown(options, "position-embedding-type")),
                               "use --position-embedding-type rope"));
  }
  if (yarn && config.use_rope_scaling) {
    problems.push_back(problem("use-rope-scaling",
                               "--use-rope-scaling and --position-embedding-type yarn exclude each "
                               "other: both stretch the rotary frequencies",
                               "keep one of the two"));
  }
}

void check_vocabulary(const TransformerConfig& config, Problems& problems) {
  if (!config.padded_vocab_size || !config.vocab_size) return;
  if (*config.padded_vocab_size >= *config.vocab_size) return;
  problems.push_back(problem("padded-vocab-size",
                             str_cat("--padded-vocab-size ", *config.padded_vocab_size,
                                     " is less than --vocab-size ", *config.vocab_size),
                             "leave --padded-vocab-size out, and it is computed"));
}

void check_qk_norm(const TransformerConfig& config, const OptionSet& options, Problems& problems) {
  if (!config.qk_layernorm || config.normalization == Normalization::RMSNorm) return;
  problems.push_back(problem("qk-layernorm",
                             str_cat("--qk-layernorm needs --normalization RMSNorm, but it is ",
                                     options.text("normalization")),
                             "use --normalization RMSNorm, or leave --qk-layernorm out"));
}

void check_window(const TransformerConfig& config, Problems& problems) {
  if (!config.window_size || config.window_size->right <= 0) return;
  const WindowSize& window = *config.window_size;
  problems.push_back(problem("window-size",
                             str_cat("--window-size ", window.text(), " looks ", window.right,
                                     " keys ahead, but attention is causal: the right number "
                                     "should be 0 or -1"),
                             str_cat("use --window-size ", window.left, ",0")));
}

void check_mlp_width(const TransformerConfig& config, Problems& problems) {
  if (config.ffn_size() > 0) return;
  problems.push_back(problem(
      "ffn-hidden-size",
      str_cat(config.swiglu ? "--swiglu" : "--geglu", " with --hidden-size ", config.hidden_size,
              " makes an MLP of width 0: 8/3 of it, rounded down to a multiple of 64"),
      "set --ffn-hidden-size, or use a --hidden-size of 24 or more"));
}

void check_rotated_channels(const TransformerConfig& config, const OptionSet& options,
                            Problems& problems) {
  if (!rotates(config) || config.latent.any()) return;
  const int64_t d = config.head_dim(), heads = config.num_attention_heads;
  const bool given = config.kv_channels.has_value();
  if (!given && config.hidden_size % heads != 0) return;  // told already
  const std::string source = given ? str_cat("--kv-channels ", d)
                                   : str_cat("--hidden-size ", config.hidden_size,
                                             " / --num-attention-heads ", heads, " = ", d);
  if (d % 2 != 0) {
    problems.push_back(problem(given ? "kv-channels" : "hidden-size",
                               str_cat(source, " is odd, but rotation takes channels in pairs"),
                               given ? nearest_multiples(d, 2)
                                     : str_cat(nearest_multiples(config.hidden_size, 2 * heads),
                                               " as a --hidden-size with even heads")));
  } else if (config.rotary_dim() < 2) {
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
  const int64_t vocab = config.padded_vocab_size.value_or(round_up(
      config.vocab_size.value_or(1), config.make_vocab_size_divisible_by));  // or a tokenizer's
  return {h * (2 * d * (heads + static_cast<double>(config.query_groups())) + f),
          h * (tables * static_cast<double>(vocab) + positions)};
}

void check_parameters(const TransformerConfig& config, const OptionSet& options,
                      Problems& problems) {
  constexpr double kMost = 35184372088832.0;  // 2^45: offsets in bytes stay far from 2^63
  const ParameterCount count = count_parameters(config);
  const double all = static_cast<double>(config.num_layers) * count.a_layer + count.rest;
  if (all < kMost) return;
  const auto fitting = static_cast<int64_t>((kMost - count.rest) / count.a_layer);
  problems.push_back(
      problem("num-layers",
              str_cat(shown(options, "num-layers"), " of ", shown(options, "hidden-size"),
                      " and --ffn-hidden-size ", config.ffn_size(), " make about ", all,
                      " parameters; a model has fewer than 2^45, about 3.5e13"),
              fitting >= 1 ? str_cat("up to ", fitting, " such layers fit")
                           : "a single such layer, or the vocabulary, is too large already"));
}

}  // namespace

std::vector<Rule> transformer_rules(const TransformerConfig& config) {
  const auto with_options = [&config](auto check) {
    return [&config, check](const OptionSet& options, Problems& problems) {
      check(config, options, problems);
    };
  };
  const auto alone = [&config](auto check) {
    return [&config, check](const OptionSet&, Problems& problems) { check(config, problems); };
  };
  const auto one_entry_a_layer =
      [&config](const char* name, std::optional<FrequencyPattern> TransformerConfig::*field) {
        return on_fields(str_cat("--", name, " has one entry a layer"), {name, "num-layers"},
                         [&config, name, field](const OptionSet&, Problems& problems) {
                           check_pattern(name, config.*field, config.num_layers, problems);
                         });
      };
  std::vector<Rule> rules = {
      on_fields("--hidden-size is a multiple of --num-attention-heads, unless --kv-channels is "
                "given",
                {"kv-channels", "multi-latent-attention"}, with_options(check_head_size)),
      on_fields("--num-query-groups divides --num-attention-heads",
                {"num-query-groups", "num-attention-heads", "group-query-attention"},
                alone(check_query_groups)),
      at_most("seq-length", "max-position-embeddings"),
      at_most_one({"swiglu", "geglu", "squared-relu", "openai-gelu"},
                  "an MLP has one activation function"),
      requires_option("window-attn-skip-freq", "window-size", "it says which layers have a window"),
      requires_option("rotary-base-local", "window-size", "it is for layers with a window"),
      one_entry_a_layer("window-attn-skip-freq", &TransformerConfig::window_attn_skip_freq),
      one_entry_a_layer("no-rope-freq", &TransformerConfig::no_rope_freq),
      on_fields("what concerns rotation needs --position-embedding-type rope or yarn",
                {"position-embedding-type"}, with_options(check_rotation)),
      on_fields("--padded-vocab-size is at least --vocab-size", {"padded-vocab-size", "vocab-size"},
                alone(check_vocabulary)),
      on_fields("--qk-layernorm needs --normalization RMSNorm", {"normalization"},
                with_options(check_qk_norm)),
      requires_option("qk-layernorm-all-heads", "qk-layernorm",
                      "it says over which channels q and k are normalised"),
      on_fields("--window-size looks back only: its right number is 0 or -1", {"window-size"},
                alone(check_window)),
      below("rope-scaling-low-freq-factor", "rope-scaling-high-freq-factor"),
      below("yarn-beta-slow", "yarn-beta-fast"),
      on_fields("with rotation --kv-channels is even, and --rotary-percent leaves at least 2 of "
                "them",
                {"hidden-size", "num-attention-heads", "kv-channels", "rotary-percent",
                 "position-embedding-type"},
                with_options(check_rotated_channels)),
      on_fields("a width of the MLP that follows from --hidden-size is not 0",
                {"hidden-size", "ffn-hidden-size"}, alone(check_mlp_width)),
      on_fields("the model has fewer than 2^45 parameters",
                {"num-layers", "hidden-size", "num-attention-heads", "ffn-hidden-size",
                 "kv-channels", "num-query-groups", "vocab-size", "padded-vocab-size",
                 "make-vocab-size-divisible-by", "max-position-embeddings"},
                with_options(check_parameters)),
  };
  for (const std::vector<Rule>& more : {moe_rules(), latent_rules()})
    rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace phx
