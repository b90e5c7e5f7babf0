#include "phalanx/data/gpt/gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "phalanx/data/data_config.h"
#include "phalanx/data/gpt/datasets.h"
#include "phalanx/data/gpt/index_cache.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Documents of the lengths 5, 3, 7, 4, 6; token k of document d is 10 d + k, the last one 99.
constexpr int32_t kEod = 99;
void write_documents(const Path& prefix) {
  IndexedWriter writer(prefix, TokenCode::u16);
  const int32_t lengths[] = {5, 3, 7, 4, 6};
  for (int32_t d = 0; d < 5; ++d) {
    std::vector<int32_t> tokens;
    for (int32_t k = 0; k < lengths[d]; ++k) tokens.push_back(10 * d + k);
    tokens.back() = kEod;
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.commit();
}

struct Data {
  Data() {
    write_documents(folder / "pair");
    config.data_path = {(folder / "pair").string()};
    config.split = "1";
    request.sample = {.seq_length = 4, .eod = kEod};
    request.num_samples[0] = 12;
  }
  Sample sample(int64_t index) {
    Sample sample;
    make_dataset(config, request, Split::train)->sample(index, sample);
    return sample;
  }
  TempFolder folder;
  DataConfig config;
  DatasetRequest request;
};

TEST(GptDataset, ASampleIsWhatTheIndexSays) {
  Data data;
  const Sample first = data.sample(0), second = data.sample(1);
  // Document 2 from token 5 on, then document 4; document 1 from token 1 on, then document 3.
  EXPECT_THAT(first.tokens, ElementsAre(25, 99, 40, 41));
  EXPECT_THAT(first.labels, ElementsAre(99, 40, 41, 42));
  EXPECT_THAT(second.tokens, ElementsAre(11, 99, 30, 31));
  EXPECT_THAT(second.labels, ElementsAre(99, 30, 31, 32));
  EXPECT_TRUE(first.loss_mask.empty() && first.positions.empty() && first.cu_seqlens.empty());
}

TEST(GptDataset, EndsOfDocumentsCutPositionsAttentionAndLoss) {
  Data data;
  data.request.sample.mask_eod_loss = true;
  EXPECT_THAT(data.sample(0).loss_mask, ElementsAre(1, 0, 1, 1));
  data.request.sample.reset_positions = true;
  EXPECT_THAT(data.sample(0).positions, ElementsAre(0, 1, 0, 1));
  EXPECT_TRUE(data.sample(0).cu_seqlens.empty());
  data.request.sample.reset_attention = true;
  EXPECT_THAT(data.sample(0).cu_seqlens, ElementsAre(0, 2, 4));
  data.request.sample.reset_positions = false;
  EXPECT_THAT(data.sample(0).positions, ElementsAre(0, 1, 2, 3));
}

TEST(GptDataset, DocumentsAreKeptApartWithoutATokenThatSaysSo) {
  Data data;
  data.request.sample = {.seq_length = 4, .inter_document = true};
  const Sample sample = data.sample(0);
  EXPECT_THAT(sample.cu_seqlens, ElementsAre(0, 2, 4));
  EXPECT_THAT(sample.positions, ElementsAre(0, 1, 0, 1));
  // A piece of one token at the end that is a label only is no sequence.
  bool seen = false;
  for (int64_t i = 0; i < 12; ++i) {
    const Sample other = data.sample(i);
    EXPECT_EQ(other.cu_seqlens.back(), 4);
    if (other.labels[3] % 10 == 0 && other.labels[3] != kEod) {
      EXPECT_THAT(other.cu_seqlens[other.cu_seqlens.size() - 2], ::testing::Ne(4));
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
}

TEST(GptDataset, PaddingIsNotLearned) {
  Data data;
  data.request.sample.pad = 40;
  const Sample sample = data.sample(0);  // 25 99 40 41 42
  EXPECT_THAT(sample.loss_mask, ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(sample.tokens, ElementsAre(25, 99, 0, 41));
  EXPECT_THAT(sample.labels, ElementsAre(99, 0, 41, 42));
}

TEST(GptDataset, ASampleThatIsNotThereIsAnError) {
  Data data;
  EXPECT_THAT(error_of([&] { data.sample(12); }), HasSubstr("does not exist"));
  data.request.sample.eod = {};
  data.request.sample.reset_positions = true;
  EXPECT_THAT(error_of([&] { data.sample(0); }), HasSubstr("the tokenizer has none"));
}

std::vector<Path> cached_files(const TempFolder& folder) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "phalanx_index_cache"))
    files.push_back(entry.path());
  return files;
}

TEST(IndexCache, IsMadeOnceAndKnowsTheContent) {
  Data data;
  const Sample fresh = data.sample(3);
  ASSERT_EQ(cached_files(data.folder).size(), 1u);
  const Path file = cached_files(data.folder)[0];
  const auto time = std::filesystem::last_write_time(file);
  EXPECT_EQ(data.sample(3).tokens, fresh.tokens);
  EXPECT_EQ(std::filesystem::last_write_time(file), time);

  // Other documents of the same size and time: another file.
  const auto bin_time = std::filesystem::last_write_time(data.folder / "pair.bin");
  const auto idx_time = std::filesystem::last_write_time(data.folder / "pair.idx");
  std::string bin = read_file(data.folder / "pair.bin");
  bin[0] = 1;
  write_file(data.folder / "pair.bin", bin);
  std::filesystem::last_write_time(data.folder / "pair.bin", bin_time);
  std::filesystem::last_write_time(data.folder / "pair.idx", idx_time);
  data.sample(3);
  EXPECT_EQ(cached_files(data.folder).size(), 2u);
}

TEST(IndexCache, AFileThatIsNoIndexIsMadeAnew) {
  Data data;
  const Sample fresh = data.sample(3);
  const Path file = cached_files(data.folder)[0];
  const std::string good = read_file(file);
  for (const size_t size : {size_t{0}, size_t{20}, good.size() - 1}) {
    write_file(file, good.substr(0, size));
    EXPECT_EQ(data.sample(3).tokens, fresh.tokens);
    EXPECT_EQ(read_file(file), good) << size;
  }
}

TEST(IndexCache, NumbersThatNoIndexHasAreAnError) {
  Data data;
  data.sample(3);
  const Path file = cached_files(data.folder)[0];
  std::string bad = read_file(file);
  for (size_t i = bad.size() - 48; i < bad.size(); ++i) bad[i] = '\x70';  // the shuffle index
  write_file(file, bad);
  EXPECT_THAT(error_of([&] { data.sample(3); }), HasSubstr("remove the cached index"));
}

TEST(IndexCache, KeepsBlendsThatTakeLongToMake) {
  Data data;
  write_documents(data.folder / "other");
  const std::string pair = (data.folder / "pair").string(), other = data.folder / "other";
  data.config.data_path = {"0.75", pair, "0.25", other};
  make_dataset(data.config, data.request, Split::train);
  EXPECT_EQ(cached_files(data.folder).size(), 2u);  // of the pairs: this blend is small

  data.request.num_samples[0] = 3'000'000;
  const auto samples = [&] {
    const auto blend = make_dataset(data.config, data.request, Split::train);
    std::vector<std::vector<int32_t>> some;
    Sample sample;
    for (int64_t i = 0; i < *blend->num_samples(); i += 99'991) {
      blend->sample(i, sample);
      some.push_back(sample.tokens);
    }
    return some;
  };
  const auto fresh = samples();
  const auto files = cached_files(data.folder);
  ASSERT_EQ(files.size(), 5u);  // two more of the pairs, and the blend's
  std::map<Path, std::filesystem::file_time_type> times;
  for (const Path& file : files) times[file] = std::filesystem::last_write_time(file);
  EXPECT_EQ(samples(), fresh);
  data.config.data_path = {"0.5", pair, "0.5", other};
  samples();
  EXPECT_EQ(cached_files(data.folder).size(), 8u) << "other weights are another blend";
  for (const auto& [file, time] : times) EXPECT_EQ(std::filesystem::last_write_time(file), time);
}

TEST(IndexCache, ABlendInAFileIsTheOneThatWasMade) {
  const TempFolder folder;
  const IndexCache cache(folder.path());
  const std::vector<double> weights = {0.5, 0.3, 0.2};
  const std::vector<int64_t> sizes = {5, 0, 9};
  for (const bool exhaustive : {false, true}) {
    const BlendIndex made = exhaustive ? exhaustive_blend_index(sizes) : blend_index(weights, 1000);
    const std::string key = exhaustive ? exhaustive_blend_key(sizes) : blend_key(weights, 1000);
    EXPECT_FALSE(cache.open<BlendIndex>(key));
    cache.save(key, made);
    const auto opened = cache.open<BlendIndex>(key);
    ASSERT_TRUE(opened);
    EXPECT_TRUE(std::ranges::equal(opened->dataset, made.dataset));
    EXPECT_TRUE(std::ranges::equal(opened->sample, made.sample));
    EXPECT_TRUE(std::ranges::equal(opened->taken, made.taken));
    EXPECT_FALSE(cache.open<GptIndex>(key)) << "a blend is no index of samples";
  }
}

TEST(Datasets, ABlendMixesPairsByWeight) {
  Data data;
  write_documents(data.folder / "other");
  data.config.data_path = {"0.75", (data.folder / "pair").string(), "0.25",
                           (data.folder / "other").string()};
  const auto blend = make_dataset(data.config, data.request, Split::train);
  EXPECT_EQ(blend->num_samples(), 12);
  EXPECT_EQ(blend->description(), "12 samples blended from 2 datasets");
  // Without weights: as many as there are, in proportion to the sizes.
  data.config.data_path = {(data.folder / "pair").string(), (data.folder / "other").string()};
  EXPECT_EQ(make_dataset(data.config, data.request, Split::train)->num_samples(), 12);
  data.request.num_samples[0] = 100;
  EXPECT_EQ(make_dataset(data.config, data.request, Split::train)->num_samples(), 12);
}

TEST(Datasets, ASplitMayHaveABlendOfItsOwn) {
  Data data;
  const std::string pair = (data.folder / "pair").string();
  data.config.data_path = {};
  data.config.train_data_path = {pair};
  data.config.valid_data_path = {"1", pair, "2", pair};
  data.request.num_samples = {6, 7, 8};
  const DatasetsBySplit datasets = make_datasets(data.config, data.request);
  EXPECT_EQ(datasets[0]->num_samples(), 6);  // all five documents
  EXPECT_EQ(datasets[1]->num_samples(), 8);  // 3 and 5
  EXPECT_EQ(datasets[2], nullptr);

  write_file(data.folder / "blend.json",
             R"({"train": [")" + pair + R"("], "test": [1, ")" + pair + R"("]})");
  data.config.train_data_path = data.config.valid_data_path = {};
  data.config.per_split_data_args_path = (data.folder / "blend.json").string();
  const DatasetsBySplit listed = make_datasets(data.config, data.request);
  EXPECT_EQ(listed[0]->num_samples(), 6);
  EXPECT_EQ(listed[1], nullptr);
  EXPECT_NE(listed[2], nullptr);
}

TEST(Datasets, WordsOfABlendMayStandInAFile) {
  Data data;
  const std::string pair = (data.folder / "pair").string();
  data.config.data_path = {};
  data.config.data_args_path = (data.folder / "blend.txt").string();
  write_file(data.config.data_args_path, "0.5 " + pair + "\n 0.5\t" + pair + "\n");
  EXPECT_EQ(make_dataset(data.config, data.request, Split::train)->description(),
            "12 samples blended from 2 datasets");
}

TEST(Datasets, MockDocumentsAreADatasetLikeOthers) {
  DatasetRequest request;
  request.sample = {.seq_length = 64, .eod = 999};
  request.num_samples = {100, 10, 10};
  const DatasetsBySplit mock = make_mock_datasets(1000, 999, request);
  Sample sample;
  for (size_t k = 0; k < 3; ++k) {
    mock[k]->sample(5, sample);
    ASSERT_EQ(sample.tokens.size(), 64u);
    // Documents count up until they end.
    for (size_t i = 0; i < 64; ++i)
      EXPECT_TRUE(sample.tokens[i] == 999 || sample.labels[i] == 999 ||
                  sample.labels[i] == (sample.tokens[i] + 1) % 1000);
  }
}

}  // namespace
}  // namespace phx
