#include "cli/inspect_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "cli/exit_codes.h"
#include "cli/parse_args.h"
#include "cli/usage_error.h"
#include "data/data_config.h"
#include "data/gpt/datasets.h"
#include "data/indexed/indexed_dataset.h"
#include "data/tokenizer.h"

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
  DataConfig data;

  template <class Field>
  void each(Field&& field) {
    field("sample", sample, "show the sample at this place of the training order", NotNegative{});
    field("json", json, "print for programs");
    field("seq-length", seq_length, "tokens a sample", InRange{1, 2147483647});
    field("seed", seed, "seed of the run", InRange{0, 4294967295.0});
    field("split-name", split_name, "which part of --split", OneOf{{"train", "valid", "test"}});
    field("num-samples", num_samples,
          "samples that the run asks for: --train-iters times the batch", NotNegative{},
          DefaultIs{"those of one epoch"});
    field("split", data.split, "shares of training, validation and test");
    field("data-cache-path", data.data_cache_path, "folder for the sample indices");
    field("reset-position-ids", data.reset_position_ids, "count positions anew in every document");
    field("reset-attention-mask", data.reset_attention_mask, "do not attend across documents");
    field("eod-mask-loss", data.eod_mask_loss, "no loss where the input ends a document");
    field("dataloader-inter-document-masking", data.dataloader_inter_document_masking,
          "keep documents apart where they were joined");
    field("vocab-size", vocab_size, "ids there are, where the tokenizer does not tell", Positive{});
    data.each_tokenizer_field(field);
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

void print_pair(const IndexedDataset& pair, bool json) {
  const Lengths lengths = lengths_of(pair);
  if (json) {
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
    fmt::print("{}\n", json_text(out));
    return;
  }
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

void print_sample(const InspectFlags& flags, const std::string& prefix) {
  DataConfig data = flags.data;
  data.data_path = {prefix};
  std::unique_ptr<const Tokenizer> tokenizer;
  const bool ids_alone = data.tokenizer_type == "NullTokenizer" && !flags.vocab_size;
  if (!data.tokenizer_type.empty() && !ids_alone)
    tokenizer = make_tokenizer(data, flags.vocab_size);
  const Split split = flags.split_name == "train"   ? Split::train
                      : flags.split_name == "valid" ? Split::valid
                                                    : Split::test;
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
  PHX_CHECK(dataset != nullptr, prefix, " has no ", split_name(split), " part with --split ",
            data.split);
  Sample sample;
  dataset->sample(*flags.sample, sample);
  if (flags.json) {
    fmt::print("{}\n", json_text(json_of(sample)));
    return;
  }
  const bool colour = ::isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("sample {} of {}\n\n{}\n", *flags.sample, dataset->description(),
             text_of(sample, tokenizer.get(), colour));
}

}  // namespace

int run_inspect_data(std::span<const std::string> args) {
  InspectFlags flags;
  OptionSet set;
  set.add("Inspect", flags);
  const CommandHelp help = {
      "phalanx inspect data PREFIX [flags]",
      "Says what a pair of token files holds; with --sample, shows a sample as training sees it.",
      "phalanx inspect data data/corpus_text_document --seq-length 2048 --sample 0 "
      "--tokenizer-type ByteTokenizer"};
  const bool has_prefix = !args.empty() && !args[0].starts_with("-");
  if (const auto exit_code = parse_args(set, {}, help, has_prefix ? args.subspan(1) : args))
    return *exit_code;
  if (!has_prefix)
    throw UsageError("inspect data: which? The PREFIX of PREFIX.bin and PREFIX.idx is missing");
  if (!flags.sample) {
    const IndexedDataset pair(args[0]);
    pair.check_all();
    print_pair(pair, flags.json);
    return kExitDone;
  }
  if (!flags.seq_length)
    throw UsageError("inspect data: --sample needs --seq-length, as the run has it");
  print_sample(flags, args[0]);
  return kExitDone;
}

}  // namespace phx
