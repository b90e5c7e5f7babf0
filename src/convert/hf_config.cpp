#include "phalanx/convert/hf_config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/convert/hf_experts.h"
#include "phalanx/convert/hf_positions.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

using Json = nlohmann::json;

Json parse(const char* text) { return parse_json(text); }

OptionSet fields_of(TransformerConfig& model) {
  OptionSet set;
  set.add("Model", model);
  return set;
}

// Said about the model's files, never read as part of the function.
const std::set<std::string> kNotOfTheFunction = {"_name_or_path",
                                                 "architectures",
                                                 "auto_map",
                                                 "bos_token_id",
                                                 "cache_implementation",
                                                 "dtype",
                                                 "embd_pdrop",
                                                 "eos_token_id",
                                                 "id2label",
                                                 "is_decoder",
                                                 "label2id",
                                                 "model_type",
                                                 "n_ctx",
                                                 "output_attentions",
                                                 "output_hidden_states",
                                                 "pad_token_id",
                                                 "pretraining_tp",
                                                 "reorder_and_upcast_attn",
                                                 "return_dict",
                                                 "summary_activation",
                                                 "summary_first_dropout",
                                                 "summary_proj_to_labels",
                                                 "summary_type",
                                                 "summary_use_proj",
                                                 "task_specific_params",
                                                 "tokenizer_class",
                                                 "torch_dtype",
                                                 "transformers_version",
                                                 "unk_token_id",
                                                 "use_cache"};

std::set<std::string> keys_read(const Family& family) {
  std::set<std::string> keys = kNotOfTheFunction;
  for (const KeyRow& row : family.keys) {
    keys.insert(row.hf);
    if (row.also != nullptr) keys.insert(row.also);
  }
  for (const OnlyRow& row : family.only) keys.insert(row.hf);
  if (family.grouped_heads) keys.insert("num_key_value_heads");
  if (family.bias_keys) keys.insert({"attention_bias", "mlp_bias"});
  keys.insert("head_dim");
  keys.insert("quantization_config");
  if (family.latent) keys.insert("qk_head_dim");
  for (const char* key : position_keys()) keys.insert(key);
  for (const char* key : expert_keys(family)) keys.insert(key);
  return keys;
}

const Family& family_of(const Json& config, const std::string& where) {
  const auto architectures = config.find("architectures");
  if (architectures != config.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string())
    return family_of_architecture(architectures->front().get<std::string>(), where);
  const auto type = config.find("model_type");
  PHX_CHECK(type != config.end() && type->is_string(), where,
            " has neither \"architectures\" nor \"model_type\": which model is it?");
  return family_of_model_type(type->get<std::string>(), where);
}

void take_keys(const Family& family, const Json& config, Json& ours,
               std::vector<std::string>& problems) {
  for (const KeyRow& row : family.keys) {
    Json value;
    const bool other_name = row.also != nullptr && config.contains(row.also);
    if (other_name && config.contains(row.hf) && config[row.hf] != config[row.also])
      problems.push_back(str_cat("\"", row.hf, "\" is ", json_text(config[row.hf]), " and \"",
                                 row.also, "\" ", json_text(config[row.also]),
                                 ", but they are two names of one key"));
    if (config.contains(row.hf)) {
      value = config[row.hf];
    } else if (other_name) {
      value = config[row.also];
    } else if (row.absent != nullptr) {
      value = parse(row.absent);
    } else {
      problems.push_back(str_cat("\"", row.hf, "\" is missing"));
      continue;
    }
    if (value.is_null() && row.absent == nullptr)
      problems.push_back(str_cat("\"", row.hf, "\" is null"));
    if (row.negated && value.is_boolean()) value = !value.get<bool>();
    ours[row.ours] = value;
  }
  for (const OnlyRow& row : family.only) {
    const Json value = config.contains(row.hf) ? config[row.hf] : parse(row.absent);
    if (std::ranges::any_of(row.values, [&](const char* good) { return value == parse(good); }))
      continue;
    problems.push_back(str_cat("\"", row.hf, "\" is ", json_text(value), ", but of ", family.name,
                               " models only ", row.values.front(), " is computed here"));
  }
  for (const FixedRow& row : family.fixed) ours[row.ours] = parse(row.value);
}

void take_heads(const Family& family, const Json& config, Json& ours,
                std::vector<std::string>& problems) {
  const auto integer = [&](const char* key) -> int64_t {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return 0;
    if (found->is_number_integer()) return found->get<int64_t>();
    problems.push_back(str_cat("\"", key, "\" is ", found->dump(), ", not a whole number"));
    return 0;
  };
  const int64_t heads = ours.value("num_attention_heads", Json()).is_number_integer()
                            ? ours["num_attention_heads"].get<int64_t>()
                            : 0;
  if (family.grouped_heads) {
    const int64_t groups = integer("num_key_value_heads");
    ours["group_query_attention"] = groups != 0 && groups != heads;
    ours["num_query_groups"] = groups != 0 ? groups : heads;
  }
  // Of latent attention it is the part with positions, which has a key of its own.
  if (const int64_t size = integer("head_dim"); size != 0 && !family.latent)
    ours["kv_channels"] = size;
  if (family.scaled_embedding && ours.value("hidden_size", Json()).is_number())
    ours["embedding_scale"] = std::sqrt(ours["hidden_size"].get<double>());
  if (!family.bias_keys) return;
  const bool attention = config.value("attention_bias", false),
             mlp = config.value("mlp_bias", false);
  ours["add_bias_linear"] = mlp;
  if (attention != mlp)
    problems.push_back(str_cat("\"attention_bias\" is ", attention, " and \"mlp_bias\" ", mlp,
                               ": biases are on all linear layers here, or on none"));
}

// FP8 with a factor for each block, as DeepSeek-V3 was released.
std::optional<Fp8Blocks> take_quantization(const Json& config, std::vector<std::string>& problems) {
  const Json quantized = config.value("quantization_config", Json());
  if (quantized.is_null()) return std::nullopt;
  const Json blocks = quantized.value("weight_block_size", Json());
  const bool known = quantized.value("quant_method", "") == "fp8" &&
                     quantized.value("fmt", "e4m3") == "e4m3" && blocks.is_array() &&
                     blocks.size() == 2 && blocks[0].is_number_integer() &&
                     blocks[1].is_number_integer() && blocks[0] > 0 && blocks[1] > 0;
  if (known) return Fp8Blocks{.rows = blocks[0].get<int64_t>(), .cols = blocks[1].get<int64_t>()};
  problems.push_back(
      "\"quantization_config\": quantized weights are not read, but for FP8 (e4m3) with a "
      "\"weight_block_size\"");
  return std::nullopt;
}

// The options' own checks: ranges, whole numbers, choices.
void load(const Json& ours, OptionSet& fields, std::vector<std::string>& problems) {
  ParseReport report;
  fields.load_json(ours, report);
  for (const Problem& problem : report.problems) problems.push_back(problem.text);
}

std::string listed(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += "\n  " + problem;
  return text;
}

}  // namespace

HfConfig config_from_hf(const Json& config, const std::string& where) {
  HfConfig result;
  result.family = &family_of(config, where);
  const Family& family = *result.family;
  std::vector<std::string> problems;
  Json ours;
  try {
    result.fp8 = take_quantization(config, problems);
    take_keys(family, config, ours, problems);
    take_heads(family, config, ours, problems);
    TransformerConfig sizes;  // positions are counted by numbers that have been checked
    OptionSet size_fields = fields_of(sizes);
    load(ours, size_fields, problems);
    if (problems.empty()) take_positions(family, config, ours, problems);
    if (problems.empty()) take_experts(family, config, ours, problems);
  } catch (const Json::exception& error) {
    problems.push_back(error.what());
  }
  OptionSet fields = fields_of(result.model);
  if (problems.empty()) {
    ours["seq_length"] = ours["max_position_embeddings"];
    load(ours, fields, problems);
    ParseReport report;
    fields.check(transformer_rules(result.model), report);
    for (const Problem& problem : report.problems) problems.push_back(problem.text);
  }
  PHX_CHECK(problems.empty(), where, " (", family.name, ") cannot be taken:", listed(problems));
  const std::set<std::string> read = keys_read(family);
  for (const auto& [key, value] : config.items())
    if (!read.contains(key) && !value.is_null()) result.unread.push_back(key);
  return result;
}

Json config_to_hf(const Family& family, const TransformerConfig& model, const std::string& dtype,
                  const Json& base) {
  TransformerConfig resolved = model;
  resolved.resolve();
  if (!resolved.query_scale) resolved.query_scale = double(resolved.head_dim());
  if (resolved.moe.any()) resolved.moe.moe_ffn_hidden_size = resolved.expert_size();
  const Json ours = fields_of(resolved).json();
  Json config = base.is_object() ? base : Json::object();
  config.erase("dtype");
  config.erase("quantization_config");  // weights are written in full
  config["architectures"] = {family.architecture};
  config["model_type"] = family.name;
  config["torch_dtype"] = dtype;
  for (const KeyRow& row : family.keys) {
    if (row.also != nullptr) config.erase(row.also);
    const Json& value = ours.at(row.ours);
    config[row.hf] = row.negated ? Json(!value.get<bool>()) : value;
    if (row.whole && value.is_number() && value.get<double>() == std::floor(value.get<double>()))
      config[row.hf] = int64_t(value.get<double>());
  }
  for (const OnlyRow& row : family.only)
    if (!config.contains(row.hf) || std::ranges::none_of(row.values, [&](const char* good) {
          return config[row.hf] == parse(good);
        }))
      config[row.hf] = parse(row.values.front());
  if (family.grouped_heads) config["num_key_value_heads"] = resolved.query_groups();
  if (family.free_head_size) config["head_dim"] = resolved.head_dim();
  if (family.bias_keys) config["attention_bias"] = config["mlp_bias"] = resolved.has_linear_bias();
  if (resolved.vocab_size) config["vocab_size"] = *resolved.vocab_size;
  give_positions(family, resolved, config);
  give_experts(family, resolved, config);
  return config;
}

namespace {

// What stands in the way of saying `model` in the family's words.
struct Obstacles {
  std::vector<std::string> list;
  bool refused = false;  // the family has no such models at all

  bool fewer_than(const Obstacles& other) const {
    return std::pair(refused, list.size()) < std::pair(other.refused, other.list.size());
  }
};

Obstacles obstacles(const Family& family, const TransformerConfig& model) {
  // They change no logits, but an export would lack them.
  if (model.mtp_num_layers > 0 && family.ahead_tensors.empty())
    return {.list = {str_cat("--mtp-num-layers ", model.mtp_num_layers,
                             ": there is no place for layers of multi-token prediction")},
            .refused = true};
  try {
    const Json config = config_to_hf(family, model, "float32", Json());
    return {function_differences(model, config_from_hf(config, "the exported config.json").model)};
  } catch (const Error& error) {
    return {.list = {error.what()}, .refused = true};
  }
}

}  // namespace

const Family& family_for(const TransformerConfig& model) {
  const Family* nearest_family = nullptr;
  Obstacles fewest;
  for (const Family& family : families()) {
    const Obstacles found = obstacles(family, model);
    if (found.list.empty()) return family;
    if (nearest_family != nullptr && !found.fewer_than(fewest)) continue;
    nearest_family = &family;
    fewest = found;
  }
  throw_error(str_cat("no family of Hugging Face has this model; ", nearest_family->name,
                      " comes nearest, but its config.json would mean another function (here and "
                      "there):",
                      listed(fewest.list)));
}

}  // namespace phx
