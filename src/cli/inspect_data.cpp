#include "phalanx/cli/inspect_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/data/chat/sft_sources.h"
#include "phalanx/data/data_config.h"
#include "phalanx/data/gpt/datasets.h"
#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/text/tokenizer.h"

namespace phx {
namespace {

using Json = nlohmann::ordered_json;

struct InspectFlags {
  std::optional<int64_t> sample;
  bool json = false;
  std::optional<int64_t> seq_length;
  int64_t seed = 1234;
  std::string split_name = "train";
  std::optional<int64_t> num_samples;
  std::optional<int64_t> vocab_size;
  int64_t threads = 0;
  DataConfig data;
  SftConfig sft;

  template <class Field>
  void each(Field&& field) {
    field("sample", sample, "show the sample with this index in the training order", NotNegative{});
    field("json", json, "print for programs");
    field("seq-length", seq_length, "tokens per sample", InRange{1, 2147483647});
    field("seed", seed, "seed of the run", InRange{0, 4294967295.0});
    field("split-name", split_name, "which part of --split", OneOf{{"train", "valid", "test"}});
    field("num-samples", num_samples,
          "samples that the run asks for: --train-iters times the batch", NotNegative{},
          DefaultIs{"those of one epoch"});
    field("data-path", data.data_path, "a blend, or files of chats, instead of PREFIX");
    field("train-data-path", data.train_data_path, "the same for training alone");
    field("valid-data-path", data.valid_data_path, "the same for validation alone");
    field("test-data-path", data.test_data_path, "the same for the test alone");
    field("data-args-path", data.data_args_path, "a file with the words of --data-path");
    field("per-split-data-args-path", data.per_split_data_args_path,
          "a JSON file with the lists train, valid and test, each like --data-path");
    field("mid-level-dataset-surplus", data.mid_level_dataset_surplus,
          "how much longer than needed each dataset of a blend is made", InRange{0, 1});
    field("split", data.split, "shares of training, validation and test");
    field("data-cache-path", data.data_cache_path, "folder for the sample indices");
    field("reset-position-ids", data.reset_position_ids, "restart positions in every document");
    field("reset-attention-mask", data.reset_attention_mask, "do not attend across documents");
    field("eod-mask-loss", data.eod_mask_loss, "no loss where the input ends a document");
    field("dataloader-inter-document-masking", data.dataloader_inter_document_masking,
          "no attention across document boundaries, and positions restart there");
    field("vocab-size", vocab_size, "number of ids, if the tokenizer does not define it",
          Positive{});
    field("threads", threads, "CPU threads that tokenize chats; 0 means one per core",
          InRange{0, 4096});
    data.TokenizerConfig::each(field);
    sft.each(field);
  }

  Split part() const {
    if (split_name == "train") return Split::train;
    return split_name == "valid" ? Split::valid : Split::test;
  }
  std::unique_ptr<const Tokenizer> tokenizer() const {
    const bool ids_alone = data.tokenizer_type == "NullTokenizer" && !vocab_size;
    if (tokenizer_type_of(data).empty() || ids_alone) return nullptr;
    return make_tokenizer(data, vocab_size);
  }
};

// Lengths in classes [2^k, 2^(k+1)), and one for 0.
struct Lengths {
  std::vector<int64_t> classes = std::vector<int64_t>(33);
  int64_t least = 0, most = 0, median = 0;
  double mean = 0;
};

Lengths lengths_of(const IndexedDataset& pair) {
  Lengths result;
  const int64_t n = pair.num_sequences();
  std::vector<int32_t> all(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    all[size_t(i)] = pair.length(i);
    ++result.classes[size_t(std::bit_width(uint32_t(pair.length(i))))];
  }
  if (n == 0) return result;
  std::ranges::nth_element(all, all.begin() + n / 2);
  result.median = all[size_t(n / 2)];
  const auto [least, most] = std::ranges::minmax(all);
  result.least = least;
  result.most = most;
  result.mean = double(pair.num_tokens()) / double(n);
  return result;
}

int64_t class_begin(size_t k) { return k == 0 ? 0 : int64_t{1} << (k - 1); }
int64_t class_end(size_t k) { return int64_t{1} << k; }  // of class 0: 1

Json json_of(const IndexedDataset& pair, const Lengths& lengths) {
  Json out{{"prefix", pair.prefix().native()},
           {"dtype", name_of_code(pair.code())},
           {"sequences", pair.num_sequences()},
           {"documents", pair.num_documents()},
           {"tokens", pair.num_tokens()},
           {"length",
            {{"least", lengths.least},
             {"median", lengths.median},
             {"mean", lengths.mean},
             {"most", lengths.most}}},
           {"histogram", Json::array()}};
  for (size_t k = 0; k < lengths.classes.size(); ++k)
    if (lengths.classes[k] > 0)
      out["histogram"].push_back(
          {{"from", class_begin(k)}, {"below", class_end(k)}, {"count", lengths.classes[k]}});
  return out;
}

void print_pair(const IndexedDataset& pair, const Lengths& lengths) {
  fmt::print("{}\n  {} tokens as {}\n  {} sequences in {} documents\n", pair.prefix().native(),
             format_thousands(pair.num_tokens()), name_of_code(pair.code()),
             format_thousands(pair.num_sequences()), format_thousands(pair.num_documents()));
  fmt::print("  lengths: least {}, median {}, mean {:.1f}, most {}\n",
             format_thousands(lengths.least), format_thousands(lengths.median), lengths.mean,
             format_thousands(lengths.most));
  const int64_t highest = std::max<int64_t>(1, std::ranges::max(lengths.classes));
  size_t last = lengths.classes.size();
  while (last > 0 && lengths.classes[last - 1] == 0) --last;
  size_t first = 0;
  while (first < last && lengths.classes[first] == 0) ++first;
  for (size_t k = first; k < last; ++k)
    fmt::print("  {:>13} .. {:<13} {:>15}  {}\n", format_thousands(class_begin(k)),
               format_thousands(class_end(k) - 1), format_thousands(lengths.classes[k]),
               std::string(size_t(40 * lengths.classes[k] / highest), '#'));
}

// All fields, also those that the trainer takes as known.
Json json_of(const Sample& sample) {
  const size_t s = sample.tokens.size();
  std::vector<int32_t> positions = sample.positions, cu_seqlens = sample.cu_seqlens;
  std::vector<int32_t> mask(sample.loss_mask.begin(), sample.loss_mask.end());
  if (mask.empty()) mask.assign(s, 1);
  if (positions.empty()) {
    positions.resize(s);
    std::iota(positions.begin(), positions.end(), 0);
  }
  if (cu_seqlens.empty()) cu_seqlens = {0, int32_t(s)};
  return {{"tokens", sample.tokens},
          {"labels", sample.labels},
          {"loss_mask", mask},
          {"position_ids", positions},
          {"cu_seqlens", cu_seqlens}};
}

// The first input and all labels, as text. What no loss is taken on is dim; where a document ends,
// there is a line.
std::string text_of(const Sample& sample, const Tokenizer* tokenizer, bool colour) {
  const size_t s = sample.tokens.size();
  const auto counts = [&](size_t i) {  // token i of the s + 1
    return i > 0 && (sample.loss_mask.empty() || sample.loss_mask[i - 1] != 0);
  };
  const auto begins = [&](size_t i) {
    return i > 0 && std::ranges::binary_search(sample.cu_seqlens, int32_t(i)) && i < s;
  };
  std::string text;
  for (size_t i = 0; i <= s;) {
    if (begins(i)) text += "\n------------------------------------ document\n";
    std::vector<int32_t> run;
    const bool dim = !counts(i);
    do {
      run.push_back(i == 0 ? sample.tokens[0] : sample.labels[i - 1]);
      ++i;
    } while (i <= s && counts(i) == !dim && !begins(i));
    std::string piece;
    if (tokenizer != nullptr)
      piece = tokenizer->decode(run);
    else
      for (const int32_t token : run) piece += str_cat(token, " ");
    text += dim && colour ? "\x1b[2m" + piece + "\x1b[22m" : piece;
  }
  return text;
}

// Every pair of the blend, with its share.
void print_blend(const InspectFlags& flags) {
  const BlendSpec blend = blend_of(flags.data, flags.part());
  PHX_CHECK(!blend.empty(), "there is no data for the ", split_name(flags.part()));
  Json all = Json::array();
  for (size_t i = 0; i < blend.prefixes.size(); ++i) {
    const IndexedDataset pair(blend.prefixes[i]);
    pair.check_all();
    const Lengths lengths = lengths_of(pair);
    if (flags.json) {
      all.push_back(json_of(pair, lengths));
      if (!blend.weights.empty()) all.back()["weight"] = blend.weights[i];
      continue;
    }
    if (!blend.weights.empty()) fmt::print("{:.4g}% of the blend: ", 100 * blend.weights[i]);
    print_pair(pair, lengths);
  }
  if (flags.json)
    fmt::print("{}\n", json_text(all.size() == 1 ? all[0] : Json{{"blend", std::move(all)}}));
}

void print_sample(const InspectFlags& flags, const SampleSource& source,
                  const Tokenizer* tokenizer) {
  Sample sample;
  source.sample(*flags.sample, sample);
  const auto* blend = dynamic_cast<const BlendedDataset*>(&source);
  const auto place = size_t(*flags.sample);
  if (flags.json) {
    Json out = json_of(sample);
    if (blend != nullptr)
      out["blend"] = {{"dataset", blend->index().dataset[place]},
                      {"sample", blend->index().sample[place]}};
    fmt::print("{}\n", json_text(out));
    return;
  }
  const bool colour = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("sample {} of {}\n", *flags.sample, source.description());
  if (blend != nullptr)
    fmt::print("sample {} of dataset {} of the blend\n", blend->index().sample[place],
               blend->index().dataset[place]);
  fmt::print("\n{}\n", text_of(sample, tokenizer, colour));
}

void print_token_sample(const InspectFlags& flags) {
  const DataConfig& data = flags.data;
  const std::unique_ptr<const Tokenizer> tokenizer = flags.tokenizer();
  const Split split = flags.part();
  DatasetRequest request;
  request.seed = uint32_t(flags.seed);
  request.num_samples[size_t(split)] = flags.num_samples;
  request.sample = {.seq_length = *flags.seq_length,
                    .mask_eod_loss = data.eod_mask_loss,
                    .reset_positions = data.reset_position_ids,
                    .reset_attention = data.reset_attention_mask,
                    .inter_document = data.dataloader_inter_document_masking};
  if (tokenizer) request.sample.eod = tokenizer->eod();
  if (!request.sample.eod && data.null_tokenizer_eod_id)
    request.sample.eod = int32_t(*data.null_tokenizer_eod_id);
  // Whoever reads wants to see where documents meet.
  if (!flags.json && !request.sample.reset_attention) request.sample.inter_document = true;
  const auto dataset = make_dataset(data, request, split);
  PHX_CHECK(dataset != nullptr, "there is no ", split_name(split), " part with --split ",
            data.split);
  // One dataset is gone through again and again; a blend ends.
  if (dynamic_cast<const BlendedDataset*>(dataset.get()) != nullptr)
    PHX_CHECK(*flags.sample < *dataset->num_samples(), "--sample ", *flags.sample,
              ": the blend has ", *dataset->num_samples(), " samples\n  hint: --num-samples says ",
              "how many the run asks for");
  print_sample(flags, *dataset, tokenizer.get());
}

void print_chats(const InspectFlags& flags) {
  const std::unique_ptr<const Tokenizer> tokenizer = flags.tokenizer();
  if (!tokenizer) throw UsageError("inspect data: --sft needs --tokenizer-type and its companions");
  const auto cores = int(std::max(1u, std::thread::hardware_concurrency()));
  const auto parts = make_sft_datasets(flags.sft, flags.data, *tokenizer,
                                       {.seq_length = *flags.seq_length,
                                        .seed = uint64_t(flags.seed),
                                        .threads = flags.threads > 0 ? int(flags.threads) : cores});
  const auto& chats = parts[size_t(flags.part())];
  PHX_CHECK(chats != nullptr, "there are no chats for the ", split_name(flags.part()),
            " with --split ", flags.data.split);
  if (flags.sample) return print_sample(flags, *chats, tokenizer.get());
  const SftCounts& counts = chats->counts();
  if (flags.json) {
    fmt::print("{}\n", json_text(Json{{"conversations", counts.conversations},
                                      {"samples", chats->samples_in_epoch()},
                                      {"tokens", counts.tokens},
                                      {"learned", counts.learned},
                                      {"cut", counts.cut},
                                      {"skipped", counts.skipped},
                                      {"silent", counts.silent},
                                      {"padding", chats->padding()}}));
    return;
  }
  fmt::print("{}\n", chats->description());
  fmt::print(
      "  {} conversations, {} of them cut, {} skipped for their length, {} with nothing to learn\n"
      "  {} tokens, of which {} have a loss\n  {} samples an epoch, {:.1f}% padding\n",
      format_thousands(counts.conversations), format_thousands(counts.cut),
      format_thousands(counts.skipped), format_thousands(counts.silent),
      format_thousands(counts.tokens), format_thousands(counts.learned),
      format_thousands(chats->samples_in_epoch()), 100 * chats->padding());
}

bool names_data(const DataConfig& data) {
  return !data.data_path.empty() || !data.train_data_path.empty() || !data.data_args_path.empty() ||
         !data.per_split_data_args_path.empty();
}

}  // namespace

int run_inspect_data(std::span<const std::string> args) {
  InspectFlags flags;
  OptionSet set;
  set.add("Inspect", flags);
  const CommandHelp help = {
      "phalanx inspect data [PREFIX or WEIGHT PREFIX ...] [flags]",
      "Shows what is in token files, in a blend of them or (--sft) in files of chats. With "
      "--sample, shows\none sample as training sees it; with --json also its ids, labels, loss "
      "mask and positions.",
      "phalanx inspect data data/corpus_text_document --seq-length 2048 --sample 0 "
      "--tokenizer-type ByteTokenizer\n"
      "  phalanx inspect data 0.3 data/books 0.7 data/web --seq-length 2048 --num-samples 1000 "
      "--sample 7\n"
      "  phalanx inspect data --sft --data-path chats.jsonl --tokenizer-type HuggingFaceTokenizer "
      "--tokenizer-model Llama-3.2-1B --seq-length 4096 --sample 0 --json"};
  size_t words = 0;
  while (words < args.size() && !args[words].starts_with("-")) ++words;
  if (const auto exit_code = parse_args(set, {}, help, args.subspan(words))) return *exit_code;
  if (words > 0 && names_data(flags.data))
    throw UsageError("inspect data: the data is named twice, by " + args[0] + " and by a flag");
  if (words > 0) flags.data.data_path.assign(args.begin(), args.begin() + long(words));
  if (!names_data(flags.data))
    throw UsageError(
        "inspect data: which? The PREFIX of PREFIX.bin and PREFIX.idx is missing, or --data-path");
  if ((flags.sample || flags.sft.sft) && !flags.seq_length)
    throw UsageError("inspect data: --sample and --sft need --seq-length, as the run has it");
  if (flags.sft.sft) {
    print_chats(flags);
  } else if (flags.sample) {
    print_token_sample(flags);
  } else {
    print_blend(flags);
  }
  return kExitDone;
}

}  // namespace phx
