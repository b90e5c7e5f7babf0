#include "phalanx/convert/family.h"

#include <algorithm>
#include <array>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

// Known by name, but with layers that this build does not have.
struct Lacking {
  const char *architecture, *model_type, *what;
};
constexpr std::array kLacking = {
    Lacking{"GptOssForCausalLM", "gpt_oss", "attention sinks and experts with biases"},
    Lacking{"Gemma3ForConditionalGeneration", "gemma3",
            "images; of Gemma 3 only the text models (Gemma3ForCausalLM) are read"},
};

[[noreturn]] void refuse(const std::string& given, bool by_type, const std::string& where) {
  const auto lacking = std::ranges::find_if(kLacking, [&](const Lacking& entry) {
    return given == (by_type ? entry.model_type : entry.architecture);
  });
  if (lacking != kLacking.end())
    throw_error(str_cat(where, ": ", given,
                        " needs layers that this build does not have: ", lacking->what));
  std::vector<std::string> names;
  std::string list;
  for (const Family& family : families()) {
    names.emplace_back(by_type ? family.name : family.architecture);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  const std::string near = nearest(given, names);
  throw_error(str_cat(where, ": ", by_type ? "model_type \"" : "architecture \"", given,
                      "\" is not known; these are: ", list,
                      near.empty() ? "" : str_cat("\n  hint: did you mean ", near, "?")));
}

}  // namespace

const Family* find_family(std::string_view name) {
  for (const Family& family : families())
    if (name == family.name) return &family;
  return nullptr;
}

const Family& family_of_architecture(const std::string& architecture, const std::string& where) {
  for (const Family& family : families())
    if (architecture == family.architecture) return family;
  refuse(architecture, /*by_type=*/false, where);
}

const Family& family_of_model_type(const std::string& model_type, const std::string& where) {
  if (const Family* family = find_family(model_type)) return *family;
  refuse(model_type, /*by_type=*/true, where);
}

std::vector<std::string> expand_names(std::string_view pattern) {
  const std::string text(pattern);
  const size_t open = text.find('{'), close = text.find('}');
  if (open == std::string::npos) return {text};
  std::vector<std::string> names;
  for (size_t at = open + 1; at <= close;) {
    const size_t end = std::min(text.find(',', at), close);
    names.push_back(text.substr(0, open) + text.substr(at, end - at) + text.substr(close + 1));
    at = end + 1;
  }
  return names;
}

std::string expert_name(std::string_view pattern, int64_t expert) {
  std::string name(pattern);
  const size_t star = name.find('*');
  return star == std::string::npos ? name : name.replace(star, 1, std::to_string(expert));
}

}  // namespace phx
