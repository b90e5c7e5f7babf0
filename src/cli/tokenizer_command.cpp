#include "phalanx/cli/tokenizer_command.h"

#include <fmt/format.h>

#include <iostream>
#include <iterator>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/parse_args.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/data/data_config.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer/bpe_trainer.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Which tokenizer, by Megatron's flags; without a type the file tells it.
struct TokenizerOptions {
  DataConfig data;
  std::optional<int64_t> vocab_size;

  template <class Field>
  void each(Field&& field) {
    field("tokenizer-type", data.tokenizer_type, "kind of tokenizer, as for pretrain",
          DefaultIs{"told by the file"});
    field("tokenizer-model", data.tokenizer_model, "file or folder of the tokenizer");
    field("vocab-file", data.vocab_file, "GPT-2 BPE: vocab.json");
    field("merge-file", data.merge_file, "GPT-2 BPE: merges.txt");
    field("tiktoken-pattern", data.tiktoken_pattern, "TikToken: how text is split into words",
          OneOf{{"v1", "v2"}});
    field("tiktoken-num-special-tokens", data.tiktoken_num_special_tokens,
          "TikToken: ids kept for special tokens", NotNegative{});
    field("vocab-size", vocab_size, "TikToken: tokens to take; no tokenizer: ids there are",
          Positive{});
  }
};

struct EncodeOptions : TokenizerOptions {
  std::string text, input;
  bool jsonl = false, special = false, tokens = false;

  template <class Field>
  void each(Field&& field) {
    TokenizerOptions::each(field);
    field("text", text, "what to encode", DefaultIs{"--input, or what comes in"});
    field("input", input, "file to encode as one text");
    field("jsonl", jsonl, "lines of --input are JSON texts, or objects with a \"text\"");
    field("special", special, "with what the tokenizer puts around a text");
    field("tokens", tokens, "print tokens with their ids, one a line");
  }
};

struct DecodeOptions : TokenizerOptions {
  std::vector<int64_t> ids;
  bool jsonl = false;

  template <class Field>
  void each(Field&& field) {
    TokenizerOptions::each(field);
    field("ids", ids, "ids to decode", DefaultIs{"numbers that come in"});
    field("jsonl", jsonl, "lines that come in are JSON lists of ids; prints JSON texts");
  }
};

struct ShowOptions : TokenizerOptions {
  int64_t first = 0, count = 10;

  template <class Field>
  void each(Field&& field) {
    TokenizerOptions::each(field);
    field("first", first, "first token to list", NotNegative{});
    field("count", count, "how many tokens to list", NotNegative{});
  }
};

struct TrainOptions {
  std::vector<std::string> input;
  std::string output, pattern = "llama3";
  int64_t vocab_size = 32000;
  std::vector<std::string> special = {"<|endoftext|>"};

  template <class Field>
  void each(Field&& field) {
    field("input", input, "texts to learn from; .jsonl files give their \"text\"", Required{});
    field("output", output, "folder for tokenizer.json and tokenizer_config.json", Required{});
    field("vocab-size", vocab_size, "tokens to end up with", InRange{300, 1 << 20});
    field("pattern", pattern, "how text is cut into words",
          OneOf{{"gpt2", "llama3", "qwen2", "o200k"}});
    field("special-tokens", special, "special tokens; the first one ends a document");
  }
};

std::string type_of(const DataConfig& data) {
  const std::string type = tokenizer_type_of(data);
  if (type.empty()) {
    throw UsageError(
        "--tokenizer-model is missing\n  hint: a tokenizer.json, a folder with one, a "
        "SentencePiece .model or a tiktoken file");
  }
  return type;
}

std::unique_ptr<const Tokenizer> load(TokenizerOptions& options) {
  options.data.tokenizer_type = type_of(options.data);
  return make_tokenizer(options.data, options.vocab_size);
}

std::string read_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// Calls each(line) with the lines of a text, the last one even without a line feed.
template <class Each>
void for_each_line(const std::string& text, Each&& each) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) each(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

Json parse_line(const std::string& line) {
  const Json json = try_parse_json(line);
  PHX_CHECK(!json.is_discarded(), "this line is no JSON: ", line.substr(0, 80));
  return json;
}

std::vector<int32_t> encoded(const Tokenizer& tokenizer, const std::string& text, bool special) {
  std::vector<int32_t> ids;
  if (special) {
    tokenizer.encode_with_special(text, ids);
  } else {
    tokenizer.encode(text, ids);
  }
  return ids;
}

int encode(std::span<const std::string> args) {
  EncodeOptions options;
  OptionSet set;
  set.add("Encode", options);
  const CommandHelp help = {"phalanx tokenizer encode --tokenizer-model FILE [flags]",
                            "Prints the ids of a text.",
                            "phalanx tokenizer encode --tokenizer-model llama/ --text 'Hello.'"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  const auto tokenizer = load(options);
  const std::string text = !options.text.empty()    ? options.text
                           : !options.input.empty() ? read_file(options.input)
                                                    : read_input();
  if (options.jsonl) {
    for_each_line(text, [&](const std::string& line) {
      const Json json = parse_line(line);
      const Json& value = json.is_object() && json.contains("text") ? json["text"] : json;
      PHX_CHECK(value.is_string(), "this line holds no text: ", line.substr(0, 80));
      const auto ids = encoded(*tokenizer, value.get<std::string>(), options.special);
      std::cout << json_text(Json(ids)) << "\n";
    });
    return kExitDone;
  }
  const auto ids = encoded(*tokenizer, text, options.special);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (options.tokens) {
      fmt::print("{:>8}  {}\n", ids[i], json_text(Json(tokenizer->token_text(ids[i]))));
    } else {
      fmt::print("{}{}", i > 0 ? " " : "", ids[i]);
    }
  }
  if (!options.tokens) fmt::print("\n");
  return kExitDone;
}

int decode(std::span<const std::string> args) {
  DecodeOptions options;
  OptionSet set;
  set.add("Decode", options);
  const CommandHelp help = {"phalanx tokenizer decode --tokenizer-model FILE [flags]",
                            "Prints the text of ids.",
                            "phalanx tokenizer decode --tokenizer-model llama/ --ids 9906 13"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  const auto tokenizer = load(options);
  if (options.jsonl) {
    for_each_line(read_input(), [&](const std::string& line) {
      const auto ids = parse_line(line).get<std::vector<int32_t>>();
      std::cout << json_text(Json(tokenizer->decode(ids))) << "\n";
    });
    return kExitDone;
  }
  std::vector<int32_t> ids(options.ids.begin(), options.ids.end());
  if (ids.empty()) {
    for (int32_t id; std::cin >> id;) ids.push_back(id);
  }
  std::cout << tokenizer->decode(ids) << "\n";
  return kExitDone;
}

int show(std::span<const std::string> args) {
  ShowOptions options;
  OptionSet set;
  set.add("Show", options);
  const CommandHelp help = {"phalanx tokenizer show --tokenizer-model FILE [flags]",
                            "Says what a tokenizer is, and lists some of its tokens.",
                            "phalanx tokenizer show --tokenizer-model llama/ --first 1000"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  const auto tokenizer = load(options);
  fmt::print("{}\n", tokenizer->description());
  for (const auto& [name, id] : {std::pair{"end of document", tokenizer->eod()},
                                 {"begin of text", tokenizer->bos()},
                                 {"end of text", tokenizer->eos()},
                                 {"padding", tokenizer->pad()}}) {
    if (id) fmt::print("{:>16}: {} {}\n", name, *id, tokenizer->token_text(*id));
  }
  const int64_t end = std::min(tokenizer->vocab_size(), options.first + options.count);
  for (int64_t id = options.first; id < end; ++id) {
    fmt::print("{:>8}  {}\n", id, json_text(Json(tokenizer->token_text(static_cast<int32_t>(id)))));
  }
  return kExitDone;
}

// The texts of a file: the whole, or the "text" of each line.
std::vector<std::string> texts_of(const std::string& path) {
  const std::string content = read_file(path);
  if (Path(path).extension() != ".jsonl") return {content};
  std::vector<std::string> texts;
  for_each_line(content, [&](const std::string& line) {
    const Json json = parse_line(line);
    PHX_CHECK(json.is_object() && json.contains("text") && json["text"].is_string(), path,
              ": a line has no \"text\"");
    texts.push_back(json["text"].get<std::string>());
  });
  return texts;
}

int train(std::span<const std::string> args) {
  TrainOptions options;
  OptionSet set;
  set.add("Train", options);
  const CommandHelp help = {
      "phalanx tokenizer train --input FILE ... --output FOLDER [flags]",
      "Learns a byte-level BPE and writes it as a tokenizer.json, which Hugging Face reads too.",
      "phalanx tokenizer train --input stories.txt --output mine/ --vocab-size 8192"};
  if (const auto exit_code = parse_args(set, {}, help, args)) return *exit_code;
  BpeTrainer trainer(options.pattern);
  int64_t bytes = 0;
  for (const std::string& path : options.input) {
    for (const std::string& text : texts_of(path)) {
      trainer.add(text);
      bytes += static_cast<int64_t>(text.size());
    }
  }
  PHX_CHECK(
      bytes > 0, "--input ", options.input.front(),
      options.input.size() > 1 ? " and the others hold" : " holds",
      " no text to learn from\n  hint: give a file of text, or of JSON lines with a \"text\"");
  const BpeTraining trained = trainer.train(options.vocab_size, options.special);
  make_folder(options.output);
  write_file(Path(options.output) / "tokenizer.json", trained.tokenizer_json);
  write_file(Path(options.output) / "tokenizer_config.json", trained.config_json);
  fmt::print("{}: {} tokens ({} merges, {} special) from {} bytes, {} different words\n",
             options.output, format_thousands(trained.vocab_size),
             format_thousands(trained.num_merges), options.special.size(), format_thousands(bytes),
             format_thousands(trained.num_words));
  return kExitDone;
}

}  // namespace

int run_tokenizer(std::span<const std::string> args) {
  const std::string action = args.empty() ? "--help" : args[0];
  const auto rest = args.empty() ? args : args.subspan(1);
  if (action == "encode") return encode(rest);
  if (action == "decode") return decode(rest);
  if (action == "show") return show(rest);
  if (action == "train") return train(rest);
  const char* usage =
      "usage: phalanx tokenizer ACTION [flags]\n\n"
      "  encode   the ids of a text\n"
      "  decode   the text of ids\n"
      "  show     what a tokenizer is\n"
      "  train    a new tokenizer from texts\n\n"
      "`phalanx tokenizer ACTION --help` explains an action.\n\n"
      "example:\n  phalanx tokenizer encode --tokenizer-model llama/ --text 'Hello.'\n";
  if (action == "--help" || action == "-h") {
    std::cout << usage;
    return args.empty() ? kExitUsage : kExitDone;
  }
  throw UsageError(str_cat(action, " is no action of phalanx tokenizer\n  hint: encode, decode, ",
                           "show or train"));
}

}  // namespace phx
