// Fine-tuning on chats: conversations as tokens, packed into samples in which they do not see each
// other, with a loss on what the assistant says.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/data/chat/packing.h"
#include "phalanx/data/sample_order.h"
#include "phalanx/data/sample_source.h"
#include "phalanx/text/chat/chat_tokens.h"

namespace phx {

enum class TooLong { cut, skip };  // what becomes of a conversation longer than a sample

struct SftOptions {
  int64_t seq_length = 0;
  PackMethod packing = PackMethod::none;
  TooLong too_long = TooLong::cut;
  uint64_t seed = 0;
  int threads = 1;
  // Conversations take multiples of so many tokens: context-parallel ranks each take equal shares.
  int64_t multiple_of = 1;
};

// A JSON lines file, and the part of its lines that is read: shares of 1.
struct ChatFile {
  Path path;
  double begin = 0, end = 1;
};

struct SftCounts {
  int64_t conversations = 0;     // read
  int64_t tokens = 0;            // of those that are used
  int64_t learned = 0;           // tokens of these with a loss
  int64_t cut = 0, skipped = 0;  // for their length
  int64_t silent = 0;            // nothing to learn in them, so they are left out
};

class SftDataset : public SampleSource {
 public:
  // Reads, renders and tokenizes everything at once. An Error names the file, its line and the
  // reason. Without a template only plain prompts and completions can be read. Training samples
  // come in a new order each epoch if they are packed by length; otherwise in the file's.
  SftDataset(const std::vector<ChatFile>& files, const ChatTemplate* chat_template,
             const Tokenizer& tokenizer, Split split, const SftOptions& options);

  void sample(int64_t index, Sample& out) const override;
  SampleParts parts() const override {
    return {.loss_mask = true, .positions = true, .cu_seqlens = true};
  }
  // For orders that go round a dataset; `sample` goes round by itself.
  std::optional<int64_t> num_samples() const override { return packs_.size(); }
  std::string description() const override;

  int64_t samples_in_epoch() const { return packs_.size(); }
  const SftCounts& counts() const { return counts_; }
  double padding() const { return padding_; }  // share of all places

 private:
  struct Line;  // what came of one line of a file
  void read(const ChatFile& file, const ChatTemplate* chat_template, const Tokenizer& tokenizer);
  void keep(const ChatTokens& tokens, int64_t& room);
  void pack_all();
  int64_t padded_length(int64_t tokens) const;

  Split split_;
  SftOptions options_;
  int32_t pad_;
  std::vector<int32_t> tokens_;  // of all conversations
  std::vector<uint8_t> learned_;
  std::vector<int64_t> starts_ = {0};      // [conversations + 1] into these
  std::vector<int64_t> line_starts_ = {};  // unpacked: the first conversation of each sample
  Packs packs_;
  std::optional<SampleOrder> order_;
  SftCounts counts_;
  double padding_ = 0;
};

}  // namespace phx
