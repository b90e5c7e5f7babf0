#include "phalanx/data/gpt/datasets.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <sstream>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/base/log.h"
#include "phalanx/core/in_parallel.h"
#include "phalanx/core/thread_pool.h"
#include "phalanx/data/gpt/blend.h"
#include "phalanx/data/gpt/index_cache.h"
#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/data/mock_data.h"

namespace phx {
namespace {

using Source = std::shared_ptr<const SampleSource>;
using Shares = std::array<double, 3>;

constexpr const char* kFlags[] = {"train-data-path", "valid-data-path", "test-data-path"};
constexpr const char* kKeys[] = {"train", "valid", "test"};  // in a JSON file of blends

int num_threads() { return int(std::max(1u, std::thread::hardware_concurrency())); }

Path cache_folder(const DataConfig& config, const Path& prefix) {
  if (!config.data_cache_path.empty()) return config.data_cache_path;
  const Path folder = prefix.has_parent_path() ? prefix.parent_path() : Path(".");
  return folder / "phalanx_index_cache";
}

GptIndex index_of(const DataConfig& config, const IndexedDataset& pair,
                  const GptIndexRequest& request, int threads) {
  return IndexCache(cache_folder(config, pair.prefix())).get(index_key(pair, request), [&] {
    // Everything is looked at once, before it is trusted.
    ThreadPool pool(threads);
    pool.parallel_for(pair.num_sequences(), 1 << 16,
                      [&](int64_t begin, int64_t end) { pair.check_sequences(begin, end); });
    try {
      return GptIndex::build(pair.lengths(), request, threads);
    } catch (const Error& error) {
      throw_error(str_cat(pair.prefix().native(), ": ", error.what()));
    }
  });
}

// One split of one pair; null if it has no documents.
Source make_one(const DataConfig& config, const std::shared_ptr<const IndexedDataset>& pair,
                const Shares& shares, Split split, std::optional<int64_t> num_samples,
                const DatasetRequest& request, int threads) {
  const int64_t all = pair->num_sequences();
  const std::optional<SequenceRange> range = split_range(shares, int(split), all);
  if (!range) return nullptr;
  if (range->count == 0) {
    PHX_CHECK(split != Split::train, pair->prefix().native(), " has ", all,
              " documents, and --split leaves none of them for training");
    log_warning(str_cat(pair->prefix().native(), " has ", all,
                        " documents, and --split leaves none ", "of them for the ",
                        split_name(split), ": it has no part there"));
    return nullptr;
  }
  const GptIndexRequest wanted{.documents = *range,
                               .seq_length = request.sample.seq_length,
                               .num_samples = num_samples,
                               .seed = request.seed};
  return std::make_shared<GptDataset>(
      pair, index_of(config, *pair, wanted, threads), request.sample,
      str_cat(format_thousands(range->count), " ", split_name(split), " documents of ",
              pair->prefix().native()));
}

// Smaller ones are made faster than a file is written.
constexpr int64_t kBlendWorthKeeping = 1 << 22;  // samples times datasets

template <class Build>
BlendIndex cached_blend(const DataConfig& config, const Path& first_prefix, const std::string& key,
                        int64_t work, Build&& build) {
  if (work < kBlendWorthKeeping) return build();
  return IndexCache(cache_folder(config, first_prefix)).get(key, build);
}

Source blend_split(const DataConfig& config, const BlendSpec& blend,
                   std::span<const std::shared_ptr<const IndexedDataset>> pairs,
                   const Shares& shares, Split split, const DatasetRequest& request) {
  const std::optional<int64_t> wanted = request.num_samples[size_t(split)];
  if (!split_range(shares, int(split), 1 << 20)) return nullptr;
  const bool weighted = !blend.weights.empty() && wanted;
  const BlendSizes sizes =
      weighted ? blend_sizes(blend.weights, *wanted, config.mid_level_dataset_surplus)
               : BlendSizes{};
  std::vector<Source> datasets(pairs.size());
  in_parallel(pairs.size(), num_threads(), [&](size_t i) {
    datasets[i] =
        make_one(config, pairs[i], shares, split,
                 weighted ? std::optional(sizes.built[i]) : std::nullopt, request, /*threads=*/1);
  });
  const auto gone = std::ranges::find(datasets, nullptr);
  if (gone != datasets.end()) {
    PHX_CHECK(std::ranges::count(datasets, nullptr) == int64_t(datasets.size()), "the ",
              split_name(split), " part of the blend has no document of ",
              pairs[size_t(gone - datasets.begin())]->prefix().native(),
              "\n  hint: a larger share of --split, or another blend");
    return nullptr;
  }
  const auto count = int64_t(datasets.size());
  const auto blended = [&](std::span<const double> weights, int64_t length) {
    return std::make_shared<BlendedDataset>(
        std::move(datasets),
        cached_blend(config, pairs[0]->prefix(), blend_key(weights, length), length * count,
                     [&] { return blend_index(weights, length); }));
  };
  if (weighted)
    return blended(blend.weights,
                   std::accumulate(sizes.used.begin(), sizes.used.end(), int64_t{0}));
  std::vector<int64_t> lengths;
  for (const Source& dataset : datasets) lengths.push_back(*dataset->num_samples());
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (!wanted)
    return std::make_shared<BlendedDataset>(
        std::move(datasets),
        cached_blend(config, pairs[0]->prefix(), exhaustive_blend_key(lengths), all * count,
                     [&] { return exhaustive_blend_index(lengths); }));
  std::vector<double> weights(lengths.begin(), lengths.end());
  const double sum = numpy_sum(weights);
  for (double& weight : weights) weight /= sum;
  return blended(weights, std::min(*wanted, all));
}

std::vector<std::shared_ptr<const IndexedDataset>> open_pairs(const BlendSpec& blend) {
  std::vector<std::shared_ptr<const IndexedDataset>> pairs;
  for (const std::string& prefix : blend.prefixes)
    pairs.push_back(std::make_shared<IndexedDataset>(prefix));
  return pairs;
}

BlendSpec parse(const std::string& where, std::span<const std::string> words) {
  try {
    return parse_blend(words);
  } catch (const Error& error) {
    throw_error(str_cat(where, " ", error.what()));
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::array<BlendSpec, 3> blends_from_json(const std::string& path) {
  const nlohmann::json json = try_parse_json(read_file(path));
  PHX_CHECK(json.is_object(), "--per-split-data-args-path ", path,
            " should hold a JSON object with lists called train, valid and test");
  std::array<BlendSpec, 3> blends;
  for (const auto& [key, list] : json.items()) {
    const auto known = std::ranges::find(kKeys, key);
    PHX_CHECK(known != std::end(kKeys), path, ": ", key, " is none of train, valid and test");
    PHX_CHECK(list.is_null() || list.is_array(), path, ": ", key, " should be a list");
    std::vector<std::string> words;
    for (const auto& word : list)
      words.push_back(word.is_string() ? word.get<std::string>() : json_text(word));
    blends[size_t(known - kKeys)] = parse(str_cat(path, ": ", key), words);
  }
  PHX_CHECK(!blends[0].empty(), path, " names nothing to train on");
  return blends;
}

// What a split takes of a blend of its own.
Source make_own_blend(const DataConfig& config, const BlendSpec& blend, Split split,
                      const DatasetRequest& request) {
  if (blend.empty()) return nullptr;
  Shares shares{};
  shares[size_t(split)] = 1;
  const auto pairs = open_pairs(blend);
  if (pairs.size() > 1) return blend_split(config, blend, pairs, shares, split, request);
  return make_one(config, pairs[0], shares, split, request.num_samples[size_t(split)], request,
                  num_threads());
}

std::array<BlendSpec, 3> own_blends(const DataConfig& config) {
  if (!config.per_split_data_args_path.empty())
    return blends_from_json(config.per_split_data_args_path);
  const std::vector<std::string>* lists[] = {&config.train_data_path, &config.valid_data_path,
                                             &config.test_data_path};
  std::array<BlendSpec, 3> blends;
  for (size_t k = 0; k < 3; ++k) blends[k] = parse(str_cat("--", kFlags[k]), *lists[k]);
  return blends;
}

bool has_own_blends(const DataConfig& config) {
  return !config.train_data_path.empty() || !config.per_split_data_args_path.empty();
}

BlendSpec common_blend(const DataConfig& config) {
  const bool in_file = !config.data_args_path.empty();
  const std::vector<std::string> words =
      in_file ? words_of(read_file(config.data_args_path)) : config.data_path;
  const BlendSpec blend = parse(in_file ? config.data_args_path : "--data-path", words);
  PHX_CHECK(!blend.empty(), in_file ? config.data_args_path : "--data-path", " names no data");
  return blend;
}

Source make_common(const DataConfig& config, const BlendSpec& blend,
                   std::span<const std::shared_ptr<const IndexedDataset>> pairs, Split split,
                   const DatasetRequest& request) {
  const Shares shares = config.split_shares();
  if (pairs.size() == 1 && blend.weights.empty())
    return make_one(config, pairs[0], shares, split, request.num_samples[size_t(split)], request,
                    num_threads());
  return blend_split(config, blend, pairs, shares, split, request);
}

}  // namespace

DatasetsBySplit make_datasets(const DataConfig& config, const DatasetRequest& request) {
  DatasetsBySplit datasets;
  if (has_own_blends(config)) {
    const auto blends = own_blends(config);
    for (size_t k = 0; k < 3; ++k)
      datasets[k] = make_own_blend(config, blends[k], Split(k), request);
    return datasets;
  }
  const BlendSpec blend = common_blend(config);
  const auto pairs = open_pairs(blend);
  for (size_t k = 0; k < 3; ++k) datasets[k] = make_common(config, blend, pairs, Split(k), request);
  return datasets;
}

BlendSpec blend_of(const DataConfig& config, Split split) {
  return has_own_blends(config) ? own_blends(config)[size_t(split)] : common_blend(config);
}

Source make_dataset(const DataConfig& config, const DatasetRequest& request, Split split) {
  if (has_own_blends(config))
    return make_own_blend(config, own_blends(config)[size_t(split)], split, request);
  const BlendSpec blend = common_blend(config);
  return make_common(config, blend, open_pairs(blend), split, request);
}

DatasetsBySplit make_mock_datasets(int32_t vocab_size, int32_t eod, const DatasetRequest& request) {
  const auto documents = std::make_shared<MockDocuments>(vocab_size, eod);
  const Shares thirds = {1.0 / 3, 1.0 / 3, 1.0 / 3};
  DatasetsBySplit datasets;
  for (size_t k = 0; k < 3; ++k) {
    const GptIndexRequest wanted{
        .documents = *split_range(thirds, int(k), MockDocuments::kNumDocuments),
        .seq_length = request.sample.seq_length,
        .num_samples = request.num_samples[k],
        .seed = request.seed};
    const std::string what = str_cat(split_name(Split(k)), " mock documents");
    datasets[k] = std::make_shared<LateSource>(
        [=, options = request.sample]() -> Source {
          return std::make_shared<GptDataset>(
              documents, GptIndex::build(documents->lengths(), wanted, /*threads=*/1), options,
              what);
        },
        request.sample.parts(), what);
  }
  return datasets;
}

}  // namespace phx
