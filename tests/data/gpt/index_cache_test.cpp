#include "phalanx/data/gpt/index_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/gpt/five_documents.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::vector<Path> cached_files(const TempFolder& folder) {
  std::vector<Path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "phalanx_index_cache"))
    files.push_back(entry.path());
  return files;
}

TEST(IndexCache, IsMadeOnceAndKnowsTheContent) {
  FiveDocuments data;
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
  FiveDocuments data;
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
  FiveDocuments data;
  data.sample(3);
  const Path file = cached_files(data.folder)[0];
  std::string bad = read_file(file);
  for (size_t i = bad.size() - 48; i < bad.size(); ++i) bad[i] = '\x70';  // the shuffle index
  write_file(file, bad);
  EXPECT_THAT(error_of([&] { data.sample(3); }), HasSubstr("remove the cached index"));
}

TEST(IndexCache, KeepsBlendsThatTakeLongToMake) {
  FiveDocuments data;
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

TEST(IndexCache, AKeySaysEverythingThatAnIndexFollowsFrom) {
  FiveDocuments data;
  const IndexedDataset pair(data.folder / "pair");
  const GptIndexRequest asked{
      .documents = {.first = 0, .count = 5}, .seq_length = 4, .num_samples = 12, .seed = 1};
  const std::string key = index_key(pair, asked);
  EXPECT_EQ(index_key(pair, asked), key);
  GptIndexRequest other = asked;
  other.seed = 2;
  EXPECT_NE(index_key(pair, other), key);
  other = asked;
  other.seq_length = 5;
  EXPECT_NE(index_key(pair, other), key);
  other = asked;
  other.num_samples.reset();
  EXPECT_NE(index_key(pair, other), key);
  other = asked;
  other.documents.count = 4;
  EXPECT_NE(index_key(pair, other), key);
}

TEST(IndexCache, WeightsOfABlendCountToTheirLastBit) {
  const std::vector<double> third = {1.0 / 3}, almost = {std::nextafter(1.0 / 3, 1)};
  EXPECT_NE(blend_key(third, 10), blend_key(almost, 10));
  EXPECT_NE(blend_key(third, 10), blend_key(third, 11));
  const std::vector<int64_t> a = {1, 23}, b = {12, 3};
  EXPECT_NE(exhaustive_blend_key(a), exhaustive_blend_key(b));
}

TEST(IndexCache, AFolderThatCannotBeWrittenToKeepsNothingAndTheIndexIsMadeAllTheSame) {
  const TempFolder folder;
  write_file(folder / "file", "");
  const IndexCache cache(folder / "file" / "below");  // a file is no folder
  const std::vector<double> weights = {0.5, 0.5};
  int built = 0;
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 2; ++i) {
    const BlendIndex index = cache.get(blend_key(weights, 4), [&] {
      ++built;
      return blend_index(weights, 4);
    });
    EXPECT_EQ(index.dataset.size(), 4u);
  }
  EXPECT_EQ(built, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("hint: --data-cache-path names another folder"));
}

}  // namespace
}  // namespace phx
