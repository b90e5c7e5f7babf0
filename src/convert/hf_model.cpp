#include "phalanx/convert/hf_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/convert/hf_tensors.h"
#include "phalanx/convert/rearranged_source.h"
#include "phalanx/convert/renamed_source.h"
#include "phalanx/convert/unstacked_source.h"

namespace phx {

namespace {

bool lacks_layers_ahead(const Path& folder, const HfConfig& config) {
  const std::string layer = str_cat(config.family->layers, config.model.num_layers, ".");
  const std::vector<std::string> names = hf_tensor_names(folder);
  return !names.empty() && std::ranges::none_of(names, [&](const std::string& name) {
    return name.find(layer) != name.npos && name.ends_with(".eh_proj.weight");
  });
}

}  // namespace

HfConfig read_hf_config(const Path& folder) {
  const Path file = folder / "config.json";
  HfConfig config = config_from_hf(read_json_object(file), file.string());
  // transformers writes the key, but drops the layers that it tells of.
  if (config.model.mtp_num_layers > 0 && lacks_layers_ahead(folder, config))
    config.model.mtp_num_layers = 0;
  return config;
}

namespace {

constexpr const char* kHead = "lm_head.weight";

// Folders that were saved without the head may lack the prefix of its other part.
std::shared_ptr<const TensorSource> with_prefix(std::shared_ptr<const TensorSource> source,
                                                const std::string& prefix) {
  for (const auto& [name, info] : source->tensors())
    if (name.starts_with(prefix)) return source;
  return std::make_shared<RenamedSource>(std::move(source), [&](const std::string& name) {
    return name == kHead ? name : prefix + name;
  });
}

// Without layers for multi-token prediction past those of the model, and without what these have
// copies of.
std::shared_ptr<const TensorSource> without_extra_layers(std::shared_ptr<const TensorSource> source,
                                                         const HfConfig& config) {
  const std::string begin = config.family->layers;
  const TransformerConfig& model = config.model;
  const auto is_extra = [&](const std::string& name) {
    if (!name.starts_with(begin)) return false;
    const int64_t layer = std::atoll(name.c_str() + begin.size());
    const bool copy = std::ranges::any_of(config.family->ahead_copies, [&](const TensorRow& row) {
      return name.ends_with(str_cat(".", row.hf));
    });
    return layer >= model.all_layers() || (layer >= model.num_layers && copy);
  };
  return std::make_shared<RenamedSource>(std::move(source), [&](const std::string& name) {
    return is_extra(name) ? std::nullopt : std::optional(name);
  });
}

}  // namespace

HfModel::HfModel(const Path& path, std::optional<int64_t> most_ahead)
    : folder(path), config(read_hf_config(path)) {
  int64_t& ahead = config.model.mtp_num_layers;
  ahead = std::min(ahead, most_ahead.value_or(ahead));
  files_ = with_prefix(open_hf_tensors(folder), config.family->prefix);
  if (config.fp8) files_ = std::make_shared<DequantizedSource>(files_, *config.fp8);
  if (config.family->latent) files_ = without_extra_layers(files_, config);
  if (!config.family->stacked.empty())
    files_ = std::make_shared<UnstackedSource>(files_, *config.family);
  tensors = RearrangedSource::hf_as_megatron(
      files_, *config.family, tensor_pairs(*config.family, config.model), folder.string());
}

void HfModel::check_tied_head() const {
  if (config.model.untie_embeddings_and_output_weights || !files_->tensors().contains(kHead))
    return;
  const auto one = [](std::shared_ptr<const TensorSource> source, const std::string& wanted) {
    return RenamedSource(std::move(source), [&](const std::string& name) {
      return name == wanted ? std::optional<std::string>("table") : std::nullopt;
    });
  };
  const auto found =
      differences(one(files_, kHead), one(tensors, "embedding.word_embeddings.weight"));
  PHX_CHECK(found.empty(), folder.string(), ": config.json ties the head to the embedding, but ",
            kHead, " is another matrix\n  hint: \"tie_word_embeddings\": false would take both");
}

std::string torch_dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      throw_error(str_cat("weights of type ", name(dtype), " are not written for Hugging Face"));
  }
}

const Family& export_hf(const Path& folder, std::shared_ptr<const TensorSource> ours,
                        const HfExport& what) {
  const Family& family = what.family != nullptr ? *what.family : family_for(what.model);
  const HfTensors theirs(std::move(ours), family, what.model);
  // The first of them is the embedding.
  const DType dtype = what.dtype.value_or(theirs.source->tensors().at(theirs.order.at(0)).dtype);
  nlohmann::json base;
  HfWriteOptions options{.max_shard_bytes = what.max_shard_bytes,
                         .dtype = what.dtype,
                         .own_types = theirs.own_types,
                         .companions = {},
                         .replace = what.replace};
  if (what.tokenizer && !what.companions) {
    options.companions = companion_files(*what.tokenizer);
    std::erase_if(options.companions,
                  [](const Path& file) { return file.filename() == "generation_config.json"; });
  }
  if (what.companions) {
    options.companions = companion_files(*what.companions);
    const Path file = *what.companions / "config.json";
    if (std::filesystem::exists(file)) {
      base = read_json_object(file);
      // Keys of another family would be noise at best.
      if (base.value("model_type", "") != family.name) base = nlohmann::json();
    }
  }
  const nlohmann::json config = config_to_hf(family, what.model, torch_dtype_name(dtype), base);
  const auto differences =
      function_differences(what.model, config_from_hf(config, "the exported config.json").model);
  std::string text;
  for (const std::string& difference : differences) text += "\n  " + difference;
  PHX_CHECK(differences.empty(), "config.json of a ", family.name,
            " model would mean another function (here and there):", text);
  write_hf_folder(folder, *theirs.source, theirs.order, config, options);
  return family;
}

}  // namespace phx
