#include "phalanx/train/data_fingerprint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/data/gpt/datasets.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Where the index of samples is kept changes none. Of files and tokenizers the bytes count, not the
// paths: data that was moved is the same data.
constexpr const char* kNotData[] = {"data_cache_path",
                                    "tokenizer_model",
                                    "vocab_file",
                                    "merge_file",
                                    "token_file",
                                    "data_path",
                                    "train_data_path",
                                    "valid_data_path",
                                    "test_data_path",
                                    "data_args_path",
                                    "per_split_data_args_path"};

// Of the first samples in the run's order. That order follows from everything: also from how many
// samples the run asks for, where that makes another number of epochs.
uint64_t hash_of_first_samples(const SampleSource& source) {
  constexpr int64_t kSamples = 4;
  std::vector<int32_t> tokens;
  Sample sample;
  for (int64_t i = 0; i < std::min(kSamples, source.num_samples().value_or(kSamples)); ++i) {
    source.sample(i, sample);
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
  }
  return xxh3(std::as_bytes(std::span(tokens)));
}

bool is_number(const std::string& word) {
  char* end = nullptr;
  std::strtod(word.c_str(), &end);
  return !word.empty() && *end == '\0';
}

// Of both ends of a file and of pages between: all of a small one. Empty where it cannot be read.
std::string sampled_hash(const Path& path, int64_t bytes) {
  constexpr int64_t kEnd = 1 << 16, kPage = 4096, kPages = 16;
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return "";
  std::vector<std::byte> part(size_t{kEnd});
  Xxh3 hash;
  hash.begin();
  bool whole = true;
  const auto add = [&](int64_t at, int64_t count) {
    for (const int64_t end = std::min(at + count, bytes); at < end;) {
      const ssize_t n =
          ::pread(file.get(), part.data(), size_t(std::min<int64_t>(end - at, kEnd)), off_t(at));
      if (n < 0 && errno == EINTR) continue;
      whole &= n > 0;
      if (n <= 0) return;
      hash.add(std::span(part).first(size_t(n)));
      at += n;
    }
  };
  if (bytes <= 2 * kEnd + kPages * kPage) {
    add(0, bytes);
  } else {
    add(0, kEnd);
    for (int64_t i = 0; i < kPages; ++i) add(kEnd + i * ((bytes - 2 * kEnd) / kPages), kPage);
    add(bytes - kEnd, kEnd);
  }
  return whole ? str_cat("xxh3:", hash.value()) : "";
}

enum class Files { sizes, contents };

class Fingerprint {
 public:
  // What lies on disk, and nothing else.
  explicit Fingerprint(const RunConfig& config) : chats_(config.sft.sft), files_(Files::contents) {
    if (!config.data.mock_data) add_files(config.data);
    if (!config.sft.chat_template.empty()) add_template(config.sft.chat_template);
  }
  Fingerprint(const RunConfig& config, const SampleSource* train) : chats_(config.sft.sft) {
    DataConfig data = config.data;
    SftConfig sft = config.sft;
    OptionSet options;
    options.add("Data", data);
    options.add("Chats", sft);
    OwnOptions own = config.dataset() != nullptr ? config.dataset()->options : OwnOptions();
    own.add_to(options, "Data");
    const Json fields = options.json();
    for (const auto& [key, value] : fields.items())
      if (std::ranges::find(kNotData, key) == std::end(kNotData)) put(flag(key), value);
    put("--seq-length", config.model.seq_length);
    put("--seed", config.train.seed);
    if (train != nullptr) put("the first samples", str_cat("xxh3:", hash_of_first_samples(*train)));
    if (!data.mock_data) add_files(data);
  }

  std::string text() const { return json_text(values_); }
  const Json& values() const { return values_; }

 private:
  void add_files(const DataConfig& data) {
    add_file(data.token_file);
    add_words(data.data_path);
    for (const auto& [name, words] : {std::pair{"--train-data-path", &data.train_data_path},
                                      {"--valid-data-path", &data.valid_data_path},
                                      {"--test-data-path", &data.test_data_path}}) {
      if (files_ == Files::contents && !words->empty())
        put(str_cat("words of ", name), str_cat(words->size()));
      add_words(*words);
    }
    if (!data.data_args_path.empty()) add_words(words_in(data.data_args_path));
    if (!data.per_split_data_args_path.empty()) add_splits(data);
    for (const std::string& file : {data.tokenizer_model, data.vocab_file, data.merge_file})
      if (!file.empty()) add_content(file);
    if (files_ == Files::contents && !data.tokenizer_model.empty())
      add_beside_tokenizer(data.tokenizer_model);
  }

  void put(const std::string& key, Json value) { values_[key] = std::move(value); }

  static std::string flag(std::string key) {
    std::ranges::replace(key, '_', '-');
    return "--" + key;
  }

  static std::vector<std::string> words_in(const Path& path) {
    std::istringstream text(std::filesystem::exists(path) ? read_file(path) : "");
    return {std::istream_iterator<std::string>(text), {}};
  }

  void add_words(const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      if (is_number(word))  // of a blend
        put(str_cat("weight ", ++num_weights_), word);
      else
        add_prefix(word);
    }
  }

  void add_prefix(const std::string& prefix) {
    add_file(chats_ ? prefix : prefix + ".bin");
    if (!chats_ && files_ == Files::contents) add_file(prefix + ".idx");
  }

  // The JSON file that names a blend for each split. Checkpoints know its bytes. Ranks compare what
  // it names, by split: the paths in it may differ from machine to machine.
  void add_splits(const DataConfig& data) {
    if (files_ == Files::sizes) return add_content(data.per_split_data_args_path);
    try {
      for (const Split split : {Split::train, Split::valid, Split::test}) {
        const BlendSpec blend = blend_of(data, split);
        put(str_cat("files of the ", split_name(split), " split"), str_cat(blend.prefixes.size()));
        for (const double weight : blend.weights)
          put(str_cat("weight ", ++num_weights_), str_cat(weight));
        for (const std::string& prefix : blend.prefixes) add_prefix(prefix);
      }
    } catch (const Error&) {  // the run says what is wrong with it
      add_content(data.per_split_data_args_path);
    }
  }

  // Its name without the folder.
  void add_file(const std::string& path) {
    if (path.empty()) return;
    std::error_code missing;
    const auto bytes = std::filesystem::file_size(path, missing);
    std::string value = str_cat(Path(path).filename().string(), ", ",
                                missing ? "missing" : str_cat(bytes, " bytes"));
    if (!missing && files_ == Files::contents) {
      const std::string hash = sampled_hash(path, int64_t(bytes));
      value += hash.empty() ? ", cannot be read" : ", " + hash;
    }
    put(str_cat("file ", ++num_files_), std::move(value));
  }

  void add_content(Path path) {
    if (std::filesystem::is_directory(path)) path /= "tokenizer.json";
    put_content(path.filename().string(), path);
  }

  void put_content(const std::string& name, const Path& path) {
    if (!std::filesystem::is_regular_file(path)) return;
    put("content of " + name, str_cat("xxh3:", xxh3(as_bytes(read_file(path)))));
  }

  // What else is read where the tokenizer lies: special tokens, and with --sft the chat template.
  void add_beside_tokenizer(const Path& model) {
    const bool folder = std::filesystem::is_directory(model);
    if (!folder && !chats_ && model.extension() != ".json") return;
    const Path home = folder ? model : model.parent_path();
    for (const char* name :
         {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"})
      put_content(name, home / name);
  }

  // As ChatTemplate::load reads it: beside a .jinja file, tokenizer_config.json has the tokens.
  void add_template(const Path& path) {
    const bool folder = std::filesystem::is_directory(path);
    const Path home = folder ? path : path.parent_path();
    if (folder)
      put_content("chat_template.jinja of --chat-template", home / "chat_template.jinja");
    else
      put_content("the file of --chat-template", path);
    if (folder || path.extension() != ".json")
      put_content("tokenizer_config.json of --chat-template", home / "tokenizer_config.json");
  }

  bool chats_;
  Files files_ = Files::sizes;
  int num_files_ = 0, num_weights_ = 0;
  Json values_ = Json::object();
};

}  // namespace

std::string data_fingerprint(const RunConfig& config, const SampleSource* train) {
  return Fingerprint(config, train).text();
}

std::map<std::string, std::string> data_contents(const RunConfig& config) {
  std::map<std::string, std::string> contents;
  const Fingerprint files(config);
  for (const auto& [key, value] : files.values().items())
    contents["data " + key] = value.get<std::string>();
  return contents;
}

std::vector<std::string> fingerprint_differences(const std::string& before,
                                                 const std::string& now) {
  const Json old_values = parse_json(before), values = parse_json(now);
  std::vector<std::string> lines;
  Json keys = old_values;
  keys.update(values);
  const auto text = [](const Json& from, const std::string& key) -> std::string {
    if (!from.contains(key)) return "nothing";
    return from[key].is_null() ? "unset" : json_text(from[key]);
  };
  for (const auto& [key, unused] : keys.items()) {
    const bool both = old_values.contains(key) && values.contains(key);
    if (both ? old_values[key] == values[key] : key.starts_with("--")) continue;
    lines.push_back(str_cat(key, ": ", text(old_values, key), " in the checkpoint, ",
                            text(values, key), " now"));
  }
  return lines;
}

}  // namespace phx
