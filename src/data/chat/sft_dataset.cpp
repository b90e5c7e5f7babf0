#include "phalanx/data/chat/sft_dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/math.h"
#include "phalanx/core/in_parallel.h"

namespace phx {

struct SftDataset::Line {
  std::vector<ChatTokens> conversations;
};

namespace {

std::vector<std::string_view> lines_of(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = std::min(content.find('\n'), content.size());
    lines.push_back(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
  }
  return lines;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

ChatTokens tokens_of(const Conversation& conversation, const ChatTemplate* chat_template,
                     const Tokenizer& tokenizer) {
  if (conversation.is_plain) return tokenize_plain(conversation, tokenizer);
  PHX_CHECK(chat_template != nullptr,
            "messages need a chat template\n  hint: --chat-template FILE, or --tokenizer-model "
            "FOLDER with a tokenizer_config.json that has one");
  return tokenize_chat(chat_template->render_with_answers(conversation), tokenizer);
}

int32_t padding_token(const Tokenizer& tokenizer) {
  if (const auto pad = tokenizer.pad(); pad && *pad >= 0) return *pad;
  if (const auto end = tokenizer.eod()) return *end;
  return tokenizer.eos().value_or(0);
}

}  // namespace

SftDataset::SftDataset(const std::vector<ChatFile>& files, const ChatTemplate* chat_template,
                       const Tokenizer& tokenizer, Split split, const SftOptions& options)
    : split_(split), options_(options), pad_(padding_token(tokenizer)) {
  PHX_CHECK(options.seq_length >= 2, "--seq-length ", options.seq_length,
            " leaves no room for a chat");
  for (const ChatFile& file : files) read(file, chat_template, tokenizer);
  // A small file has no lines for some part of --split: evaluation does without, training cannot.
  if (counts_.learned == 0 && split != Split::train) return;
  PHX_CHECK(counts_.learned > 0, "there is no ", split_name(split),
            " chat with an answer to learn: ", counts_.conversations, " conversations were read, ",
            counts_.skipped, " were too long, ", counts_.silent, " had nothing to learn in ",
            options.seq_length,
            " tokens\n  hint: a longer --seq-length, another --split, or more data");
  pack_all();
}

void SftDataset::read(const ChatFile& file, const ChatTemplate* chat_template,
                      const Tokenizer& tokenizer) {
  const MappedFile mapped(file.path);
  const auto* bytes = reinterpret_cast<const char*>(mapped.data());
  const std::vector<std::string_view> lines = lines_of(
      bytes == nullptr ? std::string_view() : std::string_view(bytes, size_t(mapped.size())));
  // As Megatron rounds the borders of a split: half to even.
  const auto border = [&](double share) {
    return size_t(std::nearbyint(share * double(lines.size())));
  };
  const size_t first = border(file.begin), count = border(file.end) - first;
  std::vector<Line> read(count);
  in_parallel(count, options_.threads, [&](size_t i) {
    if (is_blank(lines[first + i])) return;
    size_t number = 0;
    try {
      for (const Conversation& conversation : parse_chat_line(lines[first + i])) {
        read[i].conversations.push_back(tokens_of(conversation, chat_template, tokenizer));
        ++number;
      }
    } catch (const Error& error) {
      throw Error(str_cat(file.path.native(), ":", first + i + 1, ": ",
                          number > 0 ? str_cat("conversation ", number + 1, " of the line: ") : "",
                          error.what()));
    }
  });
  for (const Line& line : read) {
    int64_t room = options_.seq_length;  // without packing a line is a sample
    const size_t before = starts_.size();
    for (const ChatTokens& conversation : line.conversations) keep(conversation, room);
    if (starts_.size() > before) line_starts_.push_back(int64_t(before) - 1);
  }
}

int64_t SftDataset::padded_length(int64_t tokens) const {
  return std::min(ceil_div(tokens, options_.multiple_of) * options_.multiple_of,
                  options_.seq_length);
}

void SftDataset::keep(const ChatTokens& tokens, int64_t& room) {
  ++counts_.conversations;
  int64_t size = int64_t(tokens.tokens.size());
  const int64_t most = options_.packing == PackMethod::none ? room : options_.seq_length;
  const bool too_long = size > most;
  if (too_long && (options_.too_long == TooLong::skip || most < 2)) {
    ++counts_.skipped;
    return;
  }
  size = std::min(size, most);
  // A first token is not predicted from anything.
  const int64_t learned = size == 0 ? 0
                                    : std::accumulate(tokens.learned.begin() + 1,
                                                      tokens.learned.begin() + size, int64_t{0});
  if (learned == 0) {
    ++counts_.silent;
    return;
  }
  counts_.cut += too_long;
  counts_.tokens += size;
  counts_.learned += learned;
  room -= padded_length(size);
  tokens_.insert(tokens_.end(), tokens.tokens.begin(), tokens.tokens.begin() + size);
  learned_.insert(learned_.end(), tokens.learned.begin(), tokens.learned.begin() + size);
  starts_.push_back(int64_t(tokens_.size()));
}

void SftDataset::pack_all() {
  const size_t count = starts_.size() - 1;
  PHX_CHECK(count <= size_t(INT32_MAX), "there are more than 2^31 conversations");
  std::vector<int32_t> lengths(count), padded(count);
  for (size_t i = 0; i < count; ++i) {
    lengths[i] = int32_t(starts_[i + 1] - starts_[i]);
    padded[i] = int32_t(padded_length(lengths[i]));
  }
  if (options_.packing == PackMethod::none) {
    packs_.items.resize(count);
    std::iota(packs_.items.begin(), packs_.items.end(), 0);
    packs_.starts = line_starts_;
    packs_.starts.push_back(int64_t(count));
  } else {
    packs_ = pack(padded, options_.seq_length, options_.packing);
  }
  padding_ = padding_share(packs_, lengths, options_.seq_length);
  if (split_ == Split::train && options_.packing == PackMethod::first_fit_decreasing)
    order_.emplace(options_.seed, packs_.size());
}

void SftDataset::sample(int64_t index, Sample& out) const {
  const int64_t place = order_ ? order_->at(index) : index % packs_.size();
  const auto s = size_t(options_.seq_length);
  out.tokens.assign(s, pad_);
  out.labels.assign(s, pad_);
  out.loss_mask.assign(s, 0);
  out.positions.resize(s);
  out.cu_seqlens.assign(1, 0);
  size_t at = 0;
  for (const int32_t item : packs_.pack(place)) {
    const auto begin = size_t(starts_[size_t(item)]), end = size_t(starts_[size_t(item) + 1]);
    for (size_t i = begin; i < end; ++i) {
      out.tokens[at + i - begin] = tokens_[i];
      if (i + 1 == end) break;  // after the last one comes nothing of this conversation
      out.labels[at + i - begin] = tokens_[i + 1];
      out.loss_mask[at + i - begin] = learned_[i + 1];
    }
    at += size_t(padded_length(int64_t(end - begin)));
    out.cu_seqlens.push_back(int32_t(at));
  }
  out.cu_seqlens.back() = int32_t(s);  // padding belongs to the last conversation
  for (size_t k = 0; k + 1 < out.cu_seqlens.size(); ++k)
    for (int32_t i = out.cu_seqlens[k]; i < out.cu_seqlens[k + 1]; ++i)
      out.positions[size_t(i)] = i - out.cu_seqlens[k];
}

std::string SftDataset::description() const {
  std::string text = str_cat(format_thousands(counts_.conversations), " ", split_name(split_),
                             " conversations in ", format_thousands(packs_.size()), " samples, ",
                             format_thousands(counts_.learned), " of ",
                             format_thousands(counts_.tokens), " tokens learned, ");
  char share[32];
  std::snprintf(share, sizeof share, "%.1f%%", 100 * padding_);
  text += std::string(share) + " padding";
  if (counts_.cut > 0) text += str_cat(", ", counts_.cut, " cut");
  if (counts_.skipped > 0) text += str_cat(", ", counts_.skipped, " too long and left out");
  if (counts_.silent > 0) text += str_cat(", ", counts_.silent, " without an answer left out");
  return text;
}

}  // namespace phx
