// Where a run's samples come from: Sources of train/session.h.
#include <algorithm>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/base/math.h"
#include "phalanx/data/chat/sft_sources.h"
#include "phalanx/data/gpt/datasets.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/train/session.h"

namespace phx {

int64_t vocabulary_of(const TransformerConfig& model) {
  return model.vocab_size.value_or(model.padded_vocab());
}

namespace {

// Ids beyond the vocabulary are found before training where that takes a moment only.
constexpr int64_t kMostTokensToScan = 256 << 20;

// Tokens that mean something to a dataset.
struct SpecialTokens {
  std::optional<int32_t> eod, pad;
  bool may_pad = false;  // whether this kind of tokenizer may have padding
};

enum class Tokenizers { opened, assumed };

SpecialTokens special_tokens(const DataConfig& data, int64_t vocab, Tokenizers how) {
  if (data.tokenizer_type == "ByteTokenizer") return {.eod = ByteTokenizer::kEod, .pad = {}};
  const bool ids_alone = data.tokenizer_type.empty() && data.tokenizer_model.empty();
  if (ids_alone || data.tokenizer_type == "NullTokenizer") {
    SpecialTokens special{.eod = int32_t(data.null_tokenizer_eod_id.value_or(vocab - 1)),
                          .pad = {}};
    const int64_t pad = data.null_tokenizer_pad_id.value_or(-1);
    if (pad >= 0 && pad != *special.eod) special.pad = int32_t(pad);
    return special;
  }
  if (how == Tokenizers::assumed) return {.eod = int32_t(vocab - 1), .pad = {}, .may_pad = true};
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(data, vocab);
  SpecialTokens special{.eod = tokenizer->eod(), .pad = tokenizer->pad(), .may_pad = true};
  // A padding id that means something else, too, would mask what should be learned.
  if (special.pad == tokenizer->eod() || special.pad == tokenizer->eos() ||
      special.pad == tokenizer->bos())
    special.pad = {};
  return special;
}

DatasetRequest dataset_request(const RunConfig& config, Tokenizers how) {
  const TrainConfig& train = config.train;
  const DataConfig& data = config.data;
  const SpecialTokens special = special_tokens(data, vocabulary_of(config.model), how);
  const BatchSchedule batches = train.batch_schedule(config.model.seq_length, /*data_parallel=*/1);
  const int64_t iterations = train.iterations(batches);
  const int64_t evaluation = train.eval_iters * batches.largest();
  // One after every interval, and one at the end.
  const int64_t evaluations =
      train.eval_interval && !train.skip_train ? iterations / *train.eval_interval + 1 : 1;
  PHX_CHECK(train.seed <= 0xffffffff, "--seed ", train.seed,
            " is too large for NumPy's generator, which shuffles the samples: at most 4294967295");
  return {.sample = {.seq_length = config.model.seq_length,
                     .eod = special.eod,
                     // Made-up chats have the parts of real ones.
                     .mask_eod_loss = data.eod_mask_loss || config.sft.sft,
                     .reset_positions = data.reset_position_ids,
                     .reset_attention = data.reset_attention_mask,
                     .inter_document = data.dataloader_inter_document_masking || config.sft.sft,
                     .pad = special.pad,
                     .may_pad = special.may_pad},
          .num_samples = {train.train_samples ? *train.train_samples : batches.after(0, iterations),
                          evaluations * evaluation, evaluation},
          .seed = uint32_t(train.seed)};
}

// What is planned is what runs: memory depends on these.
void check_parts(const Dataset& dataset, const SampleSource& source) {
  const SampleParts told = dataset.parts, has = source.parts();
  PHX_CHECK(told.loss_mask == has.loss_mask && told.positions == has.positions &&
                told.cu_seqlens == has.cu_seqlens,
            "--dataset ", dataset.name,
            ": its samples carry other parts (mask, positions, lengths) than its entry in the "
            "catalogue says");
}

std::array<std::shared_ptr<const SftDataset>, 3> open_chats(const RunConfig& config) {
  const int64_t vocab = vocabulary_of(config.model);
  const std::unique_ptr<const Tokenizer> tokenizer = make_tokenizer(config.data, vocab);
  PHX_CHECK(tokenizer->vocab_size() <= vocab, "--vocab-size ", vocab, " is too small for ",
            tokenizer->description(), "\n  hint: --vocab-size ", tokenizer->vocab_size());
  const int64_t ranks = config.parallel.context_parallel_size;
  const auto cores = int(std::max(1u, std::thread::hardware_concurrency()));
  return make_sft_datasets(config.sft, config.data, *tokenizer,
                           {.seq_length = config.model.seq_length,
                            .seed = uint64_t(config.train.seed),
                            .threads = config.train.threads > 0 ? int(config.train.threads) : cores,
                            .multiple_of = ranks > 1 ? 2 * ranks : 1});
}

// A blend without weights does not repeat its data, and --dataloader-type single reads it once:
// Megatron's run ends where it runs out, halfway through training. Here training data that is too
// short is refused before that, and evaluations begin anew in theirs.
constexpr const char* kRepeats =
    "a weight before each prefix of the blend lets the data be repeated";

void check_training(const SampleSource& source, int64_t needed) {
  const std::optional<int64_t> there = source.num_samples();
  PHX_CHECK(!there || *there >= needed, "the run trains on ", needed, " samples, but there are ",
            source.description(), "\n  hint: ", kRepeats);
}

void check_evaluation(const SampleSource& source, Split split, int64_t evaluations,
                      const TrainConfig& train, int64_t batch) {
  const std::optional<int64_t> there = source.num_samples();
  const int64_t needed = evaluations * train.eval_iters * batch;
  if (!there || *there >= needed) return;
  const int64_t fits = *there / (evaluations * batch);
  log_warning(str_cat(
      "the run takes ", needed, " ", split_name(split), " samples (", evaluations,
      evaluations == 1 ? " evaluation" : " evaluations", " of --eval-iters ", train.eval_iters,
      " batches of ", batch, "), but there are ", source.description(),
      ": some are evaluated more than once\n  hint: ", kRepeats,
      fits > 0 ? str_cat("; --eval-iters ", fits, " is the most that fits")
               : std::string(evaluations > 1 ? "; a longer --eval-interval takes fewer" : "")));
}

void check_lengths(const Sources& sources, const RunConfig& config, int64_t train_samples) {
  const TrainConfig& train = config.train;
  if (config.data.dataloader_type != DataloaderType::single) return;
  if (sources.train && !train.skip_train) check_training(*sources.train, train_samples);
  if (train.eval_iters == 0 || (!train.skip_train && !train.eval_interval)) return;
  const BatchSchedule batches = train.batch_schedule(config.model.seq_length, /*data_parallel=*/1);
  // One after every interval but the last, and one at the end.
  const int64_t evaluations =
      train.skip_train ? 1 : ceil_div(train.iterations(batches), *train.eval_interval);
  if (sources.valid)
    check_evaluation(*sources.valid, Split::valid, evaluations, train, batches.largest());
  if (sources.test && !train.skip_train)
    check_evaluation(*sources.test, Split::test, 1, train, batches.largest());
}

// Behind the last sample comes the first: data may be too short for all evaluations, and a run that
// goes on may have evaluated more often before than it will from here on.
std::shared_ptr<const SampleSource> repeated(std::shared_ptr<const SampleSource> source) {
  return source ? std::make_shared<RepeatedSource>(std::move(source)) : nullptr;
}

}  // namespace

Sources::Sources(const RunConfig& config) {
  const int64_t vocab = vocabulary_of(config.model), s = config.model.seq_length;
  const DataConfig& data = config.data;
  if (const Dataset* own = config.dataset(); own != nullptr && !data.mock_data) {
    const DatasetRequest request = dataset_request(config, Tokenizers::opened);
    const DatasetsBySplit datasets =
        own->open({.request = request, .config = data, .vocab_size = vocab}, own->options);
    train = datasets[0];
    valid = repeated(datasets[1]);
    test = repeated(datasets[2]);
    PHX_CHECK(train || valid, "--dataset ", own->name, " has no part to train or to evaluate on");
    check_parts(*own, first());
    check_lengths(*this, config, *request.num_samples[0]);
    return;
  }
  if (config.sft.sft && !data.mock_data) {  // a proof of a layout takes mock tokens
    const auto chats = open_chats(config);
    train = chats[0];
    valid = chats[1];
    test = chats[2];
    return;
  }
  if (data.mock_data) {
    const DatasetRequest request = dataset_request(config, Tokenizers::opened);
    const auto last = int32_t(vocab - 1);
    const DatasetsBySplit mock =
        make_mock_datasets(int32_t(vocab), request.sample.eod.value_or(last), request);
    train = mock[0];
    valid = repeated(mock[1]);
    test = mock[2];
    return;
  }
  if (data.token_file.empty()) {
    const bool named = !data.data_path.empty() || !data.data_args_path.empty() ||
                       !data.train_data_path.empty() || !data.per_split_data_args_path.empty();
    PHX_CHECK(named, "there is nothing to train on\n  hint: --mock-data, or --data-path PREFIX");
    const DatasetRequest request = dataset_request(config, Tokenizers::opened);
    const DatasetsBySplit datasets = make_datasets(data, request);
    train = datasets[0];
    valid = repeated(datasets[1]);
    test = repeated(datasets[2]);
    PHX_CHECK(train || valid, "the data has no part to train or to evaluate on");
    check_lengths(*this, config, *request.num_samples[0]);
    return;
  }
  const auto file = std::make_shared<TokenFile>(data.token_file);
  if (file->num_tokens() <= kMostTokensToScan) {
    const int32_t largest = file->largest_token();
    PHX_CHECK(largest < vocab, "--token-file ", data.token_file, " holds token ", largest,
              ", outside of the vocabulary of ", vocab, "\n  hint: --vocab-size ", largest + 1,
              " or more");
  }
  const auto shares = data.split_shares();
  const auto seed = uint64_t(config.train.seed);
  const auto part = [&](Split split) -> std::shared_ptr<const SampleSource> {
    if (shares[size_t(split)] <= 0) return nullptr;
    return std::make_shared<TokenFileSource>(file, split, s, shares, seed);
  };
  train = part(Split::train);
  valid = part(Split::valid);
  test = part(Split::test);
}

Sources Sources::made_up(const RunConfig& config) {
  const auto vocab = int32_t(vocabulary_of(config.model));
  const DataConfig& data = config.data;
  DatasetRequest request = dataset_request(config, Tokenizers::assumed);
  if (const Dataset* own = config.dataset()) {
    request.sample.mask_eod_loss = own->parts.loss_mask;
    request.sample.reset_positions = own->parts.positions;
    request.sample.inter_document = own->parts.cu_seqlens;
  }
  const DatasetsBySplit mock = make_mock_datasets(vocab, vocab - 1, request);
  const auto shares = data.split_shares();
  const auto there = [&](Split split) {
    if (data.mock_data || !data.per_split_data_args_path.empty()) return true;
    if (data.train_data_path.empty()) return shares[size_t(split)] > 0;
    return split == Split::train ||
           !(split == Split::valid ? data.valid_data_path : data.test_data_path).empty();
  };
  const auto part = [&](Split split) { return there(split) ? mock[size_t(split)] : nullptr; };
  Sources sources;
  sources.train = part(Split::train);
  sources.valid = part(Split::valid);
  sources.test = part(Split::test);
  return sources;
}

}  // namespace phx
