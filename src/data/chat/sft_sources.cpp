#include "phalanx/data/chat/sft_sources.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/text/jinja/builtins.h"

namespace phx {

PackMethod SftConfig::packing() const {
  if (sft_packing == "in-order") return PackMethod::in_order;
  return sft_packing == "none" ? PackMethod::none : PackMethod::first_fit_decreasing;
}

TooLong SftConfig::too_long() const {
  return sft_too_long == "skip" ? TooLong::skip : TooLong::cut;
}

std::vector<Rule> sft_rules() {
  const char* chats = "chats come from files of JSON lines";
  const char* apart = "chats in a sample are kept apart anyway";
  const char* idle = "it is about chats";
  return {
      excludes("sft", "mock-data", chats),
      excludes("sft", "token-file", chats),
      excludes("sft", "data-args-path", chats),
      excludes("sft", "per-split-data-args-path", chats),
      excludes("sft", "reset-position-ids", apart),
      excludes("sft", "reset-attention-mask", apart),
      excludes("sft", "dataloader-inter-document-masking", apart),
      excludes("sft", "eod-mask-loss", "the loss is on answers alone"),
      requires_option("sft-tokenizer-prompt-format", "sft", idle),
      requires_option("chat-template", "sft", idle),
  };
}

namespace {

std::vector<ChatFile> files_of(const std::vector<std::string>& paths, double begin, double end) {
  std::vector<ChatFile> files;
  for (const std::string& path : paths) {
    char* rest = nullptr;
    std::strtod(path.c_str(), &rest);
    PHX_CHECK(*rest != '\0',
              "--sft reads the files of --data-path one after the other: the weight ", path,
              " has no meaning here\n  hint: leave weights out");
    files.push_back({path, begin, end});
  }
  return files;
}

std::optional<ChatTemplate> template_of(const SftConfig& sft, const DataConfig& data) {
  if (sft.sft_tokenizer_prompt_format == "identity") {
    PHX_CHECK(sft.chat_template.empty(),
              "--sft-tokenizer-prompt-format identity and "
              "--chat-template ",
              sft.chat_template, " contradict each other");
    return ChatTemplate("{% for message in messages %}{{ message.content }}{% endfor %}",
                        "identity", jinja::parse_json("{}"));
  }
  if (!sft.chat_template.empty())
    return ChatTemplate::load(sft.chat_template, sft.chat_template_name);
  if (data.tokenizer_model.empty()) return std::nullopt;
  const Path model = data.tokenizer_model;
  const Path home = std::filesystem::is_directory(model) ? model : model.parent_path();
  const bool there = std::filesystem::exists(home / "chat_template.jinja") ||
                     std::filesystem::exists(home / "tokenizer_config.json");
  if (!there) return std::nullopt;
  return ChatTemplate::load(home, sft.chat_template_name);
}

}  // namespace

std::array<std::shared_ptr<const SftDataset>, 3> make_sft_datasets(const SftConfig& sft,
                                                                   const DataConfig& data,
                                                                   const Tokenizer& tokenizer,
                                                                   SftOptions options) {
  options.packing = sft.packing();
  options.too_long = sft.too_long();
  const std::optional<ChatTemplate> chat_template = template_of(sft, data);
  std::array<std::vector<ChatFile>, 3> files;
  if (data.train_data_path.empty()) {
    const auto shares = data.split_shares();
    double begin = 0;
    for (size_t split = 0; split < 3; ++split) {
      // The last share ends at 1 exactly, whatever the sum is rounded to.
      const bool last = std::all_of(shares.begin() + long(split) + 1, shares.end(),
                                    [](double share) { return share <= 0; });
      const double end = last ? 1 : begin + shares[split];
      if (shares[split] > 0) files[split] = files_of(data.data_path, begin, end);
      begin = end;
    }
  } else {
    files = {files_of(data.train_data_path, 0, 1), files_of(data.valid_data_path, 0, 1),
             files_of(data.test_data_path, 0, 1)};
  }
  std::array<std::shared_ptr<const SftDataset>, 3> parts;
  for (const Split split : {Split::train, Split::valid, Split::test}) {
    const auto& part = files[size_t(split)];
    if (part.empty()) continue;
    auto made = std::make_shared<const SftDataset>(part, chat_template ? &*chat_template : nullptr,
                                                   tokenizer, split, options);
    if (made->samples_in_epoch() > 0) parts[size_t(split)] = std::move(made);
  }
  return parts;
}

}  // namespace phx
