// What tells one Hugging Face family from another, as data: how its tensors are named and laid out
// beside ours, and what the keys of its config.json mean. A new family is a new table here; the
// code that reads the tables (tensor_map.h, hf_config.h) knows no family by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

// How the rows of one of our matrices ([out, in]) or vectors lie in theirs.
enum class RowLayout : uint8_t {
  same,
  qkv,      // three tensors: q heads, k heads, v heads; ours go group by group
  one_qkv,  // one tensor: q heads | k heads | v heads (GPT-2)
  gate_up,  // two tensors, which stand one after the other in ours
  experts,  // a tensor for each expert, one after the other in ours; "*" in the name is its number
  experts_gate_up,  // two tensors for each expert: an expert's gate and up, then the next expert's
};

struct TensorRow {
  const char* ours;  // "mlp.linear_fc1.weight"
  const char* hf;    // "mlp.{gate,up}_proj.weight": two names, as a shell would read it
  RowLayout rows = RowLayout::same;
  bool transposed = false;  // theirs is [in, out] (GPT-2's Conv1D); vectors are as they are
  bool own_type = false;    // stays in its type where the weights are converted to another
};

// A layer's tensor in folders that hold all experts in one ([e, rows, cols]), and what it is called
// where they are apart: "*" and braces as in TensorRow. Without "*" only the name differs.
struct StackedRow {
  const char* stacked;
  const char* hf;
};

// A key of config.json that is one of our options. Values are JSON texts.
struct KeyRow {
  const char* hf;
  const char* ours;              // as in the options' JSON: "num_layers"
  const char* absent = nullptr;  // what the library takes when the key is missing; null: an error
  bool negated = false;
  bool whole = false;          // ours is a real number, theirs is declared as an integer
  const char* also = nullptr;  // another name of the key, which some versions write
};

// A key that has to have one of these values (JSON texts; the first is written on export): others
// would be another function.
struct OnlyRow {
  const char* hf;
  std::vector<const char*> values;
  const char* absent;  // as in KeyRow, never null
};

// An option that the family always has at this value.
struct FixedRow {
  const char* ours;
  const char* value;
};

// Which layers have a sliding window when config.json has no "layer_types".
enum class WindowStyle : uint8_t {
  none,
  all_layers,  // "sliding_window", unless it is null
  from_layer,  // with "use_sliding_window": the layers from "max_window_layers" on
  periodic,    // all but every N-th: N is "sliding_window_pattern", or the family's
};

enum class RopeStyle : uint8_t {
  none,
  one,               // "rope_theta" and "rope_scaling", or "rope_parameters"
  local_and_global,  // windowed layers have "rope_local_base_freq" and no scaling (Gemma 3)
};

enum class ExpertStyle : uint8_t {
  none,
  all_layers,
  // The layers at multiples of "decoder_sparse_step" (counted from 1), without "mlp_only_layers".
  sparse_step,
  // All but the first "first_k_dense_replace" (DeepSeek), in groups.
  after_dense,
};

struct Family {
  const char* name;          // as transformers calls it: "qwen2"
  const char* architecture;  // "Qwen2ForCausalLM"
  const char* prefix;        // of the tensors; folders saved without the head may lack it
  const char* layers;        // a layer's tensors begin with this and its number: "model.layers."
  std::vector<TensorRow> tensors;
  std::vector<TensorRow>
      layer_tensors;  // ours without "decoder.layers.N.", theirs without `layers`
  // The same of a layer of multi-token prediction, around its transformer layer: theirs are
  // numbered behind the decoder's. Empty: the family has no place for them.
  std::vector<TensorRow> ahead_tensors;
  // Of ours, and what each such layer has a copy of it as, which is written and not read.
  std::vector<TensorRow> ahead_copies;
  std::vector<StackedRow> stacked;
  std::vector<const char*> ignored;  // tensors that are no weights: ends of names

  std::vector<KeyRow> keys;
  std::vector<OnlyRow> only;
  std::vector<FixedRow> fixed;
  RopeStyle rope = RopeStyle::one;
  double rope_theta = 10000;  // when config.json has none
  WindowStyle window = WindowStyle::none;
  int64_t sliding_window = 4096;  // when config.json has none; 0: no window then
  int64_t window_period = 0;
  ExpertStyle experts = ExpertStyle::none;
  double balance = 0.001;  // "router_aux_loss_coef" when config.json has none
  // DeepSeek: latent attention; layers past the last are for multi-token prediction.
  bool latent = false;
  bool bias_keys = false;         // "attention_bias" and "mlp_bias", which have to agree (Llama)
  bool grouped_heads = true;      // has "num_key_value_heads"
  bool free_head_size = true;     // has "head_dim"
  bool scaled_embedding = false;  // by the root of the hidden size (Gemma)
};

std::span<const Family> families();
const Family* find_family(std::string_view name);  // null if there is none

// By the "architectures" (or "model_type") of a config.json. The error says which there are, and
// for one that is known but whose layers this build does not have, that.
const Family& family_of_architecture(const std::string& architecture, const std::string& where);
const Family& family_of_model_type(const std::string& model_type, const std::string& where);

// "a.{x,y}.b" -> "a.x.b", "a.y.b".
std::vector<std::string> expand_names(std::string_view pattern);
// "a.*.b" -> "a.7.b"; a pattern without "*" stays as it is.
std::string expert_name(std::string_view pattern, int64_t expert);

}  // namespace phx
