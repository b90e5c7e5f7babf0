#include "phalanx/data/data_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/data/gpt/blend.h"

namespace phx {
namespace {

// Up to three numbers, as Megatron finds them: runs of digits and points. What stands between them
// only separates them, a minus and an exponent's letter too. Throws an Error that goes on after the
// value.
std::array<double, 3> parse_split(const std::string& text) {
  constexpr const char* kNumber = ".0123456789";
  std::array<double, 3> shares = {};
  size_t count = 0;
  for (size_t begin = text.find_first_of(kNumber); begin != std::string::npos; ++count) {
    const size_t end = std::min(text.find_first_not_of(kNumber, begin), text.size());
    PHX_CHECK(count < shares.size(), "has more than three shares");
    const std::string number = text.substr(begin, end - begin);
    const bool points = std::ranges::count(number, '.') > 1 || number == ".";
    PHX_CHECK(!points, "holds ", number, ", which is not a number");
    shares[count] = parse_number(number);
    begin = text.find_first_of(kNumber, end);
  }
  PHX_CHECK(count > 0, "has no number");
  const double sum = shares[0] + shares[1] + shares[2];
  PHX_CHECK(sum > 0, "has no share above 0");
  for (double& share : shares) share /= sum;
  return shares;
}

void check_split(const OptionSet& options, Problems& problems) {
  try {
    parse_split(options.text("split"));
  } catch (const Error& error) {
    problems.push_back({ProblemKind::rule, "--split",
                        str_cat(shown(options, "split"), " ", error.what()),
                        "three numbers as in 949,50,1: training, validation, test"});
  }
}

void check_token_file(const OptionSet& options, Problems& problems) {
  if (!options.active("token-file")) return;
  const auto refuse = [&](const char* name) {
    problems.push_back({ProblemKind::rule, str_cat("--", name),
                        str_cat("--token-file does not go with ", shown(options, name)),
                        "use --data-path with a pair of files that phalanx preprocess writes"});
  };
  for (const char* name : {"reset-position-ids", "reset-attention-mask", "eod-mask-loss",
                           "dataloader-inter-document-masking"})
    if (options.active(name)) refuse(name);
  if (options.text("dataloader-type") == "cyclic") refuse("dataloader-type");
}

bool is_number(const std::string& word) {
  try {
    parse_number(word);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Scripts of pretrain_bert.py and pretrain_t5.py name a vocabulary alone, often without a type.
void check_vocab_file(const OptionSet& options, Problems& problems) {
  const std::string type = options.text("tokenizer-type");
  const bool bpe = type.empty() || type == "GPT2BPETokenizer";
  if (!bpe || !options.active("vocab-file") || options.active("merge-file")) return;
  if (options.at("tokenizer-type").failed) return;  // told already
  problems.push_back(
      {ProblemKind::rule, "--vocab-file",
       str_cat(shown(options, "vocab-file"),
               " stands without --merge-file, as in scripts of BERT and T5, whose WordPiece "
               "vocabulary it is; they are other models than the GPT family trained here"),
       "for a GPT with GPT-2's tokenizer add --merge-file"});
}

// Where words do not come in pairs, all of them are prefixes, as in Megatron. A number that no
// files have as their name is a weight without its prefix then.
void check_pairs(const std::string& flag, const std::vector<std::string>& words,
                 Problems& problems) {
  if (words.size() % 2 == 0) return;
  for (const std::string& word : words) {
    std::error_code code;
    if (!is_number(word) || std::filesystem::exists(word + ".idx", code)) continue;
    problems.push_back({ProblemKind::rule, "--" + flag,
                        str_cat("--", flag, " has ", words.size(), " words and the weight ", word,
                                ": weights stand before prefixes, one before each"),
                        "as in 0.3 web 0.7 books; there are no files " + word + ".bin and .idx"});
    return;
  }
}

void check_blends(const OptionSet& options, Problems& problems) {
  for (const char* flag : {"data-path", "train-data-path", "valid-data-path", "test-data-path"}) {
    const Option& option = options.at(flag);
    if (option.failed || !options.active(flag)) continue;
    const auto words = option.get().get<std::vector<std::string>>();
    try {
      parse_blend(words);
      check_pairs(flag, words, problems);
    } catch (const Error& error) {
      problems.push_back({ProblemKind::rule, str_cat("--", flag),
                          str_cat("--", flag, " ", error.what()), "as in 0.3 web 0.7 books"});
    }
  }
}

}  // namespace

std::array<double, 3> DataConfig::split_shares() const { return parse_split(split); }

std::vector<Rule> data_rules() {
  const char* why = "tokens have one source";
  const char* own = "data has shares of one blend, or its own blends";
  const char* apart = "it tells documents apart by itself, and begins positions anew";
  return {
      at_most_one({"mock-data", "dataset", "token-file", "data-path", "data-args-path"}, why),
      at_most_one(
          {"mock-data", "dataset", "token-file", "train-data-path", "per-split-data-args-path"},
          why),
      excludes("data-args-path", "train-data-path", own),
      excludes("data-args-path", "per-split-data-args-path", own),
      excludes("data-path", "per-split-data-args-path", own),
      excludes("data-path", "train-data-path", own),
      excludes("data-path", "valid-data-path", own),
      excludes("data-path", "test-data-path", own),
      requires_option("valid-data-path", "train-data-path",
                      "training needs a blend of its own then"),
      requires_option("test-data-path", "train-data-path",
                      "training needs a blend of its own then"),
      {"--split has up to three shares, not all of them 0", check_split},
      {"a blend has a weight above 0 before every prefix, or no weights", check_blends},
      excludes("dataloader-inter-document-masking", "reset-attention-mask", apart),
      excludes("dataloader-inter-document-masking", "reset-position-ids", apart),
      {"a raw token file has one order and does not tell documents apart", check_token_file},
      requires_option("merge-file", "vocab-file", "GPT-2 BPE has both"),
      {"--vocab-file goes with --merge-file: a WordPiece vocabulary, which BERT and T5 have, is "
       "not "
       "read",
       check_vocab_file},
  };
}

}  // namespace phx
