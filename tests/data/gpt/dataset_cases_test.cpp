// Random cases that scripts/check_datasets.py made with NumPy and PyTorch: a few are kept beside
// the tests, more come from the file that PHX_DATASET_CASES names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "phalanx/data/batch_order.h"
#include "phalanx/data/data_config.h"
#include "phalanx/data/gpt/blend.h"
#include "phalanx/data/gpt/gpt_index.h"
#include "phalanx/data/numpy_random.h"

namespace phx {
namespace {

using Json = nlohmann::json;

template <class T>
std::vector<T> list(const Json& json) {
  return json.get<std::vector<T>>();
}
template <class T, class U>
std::vector<T> as(std::span<const U> values) {
  return {values.begin(), values.end()};
}

void check_index(const Json& json) {
  const auto lengths = list<int32_t>(json["lens"]);
  DataConfig config;
  config.split = json["split"];
  const auto range = split_range(config.split_shares(), json["part"], int64_t(lengths.size()));
  ASSERT_EQ(range.has_value(), !json["range"].is_null());
  if (!range) return;
  EXPECT_EQ(range->first, json["range"][0]);
  EXPECT_EQ(range->first + range->count, json["range"][1]);
  if (!json.contains("documents")) return;
  GptIndexRequest request{
      .documents = *range, .seq_length = json["seq_length"], .seed = json["seed"]};
  if (!json["num_samples"].is_null()) request.num_samples = json["num_samples"].get<int64_t>();
  const LengthsView view{reinterpret_cast<const std::byte*>(lengths.data()),
                         int64_t(lengths.size())};
  if (json["shuffle"].empty()) {  // too few tokens for a sample: an error here
    EXPECT_ANY_THROW(GptIndex::build(view, request, 1));
    return;
  }
  const GptIndex index = GptIndex::build(view, request, 2);
  const GptIndex::Arrays arrays = index.arrays();
  EXPECT_EQ(as<int32_t>(arrays.documents), list<int32_t>(json["documents"]));
  EXPECT_EQ(as<int32_t>(arrays.shuffle), list<int32_t>(json["shuffle"]));
  EXPECT_EQ(as<int32_t>(arrays.starts), list<int32_t>(json["starts"]));
}

void check_blend(const Json& json) {
  std::vector<std::string> words;
  for (const Json& weight : json["raw"]) {
    words.push_back(weight.dump());
    words.push_back("prefix");
  }
  const auto weights = list<double>(json["weights"]);
  EXPECT_EQ(parse_blend(words).weights, weights);
  const BlendSizes sizes = blend_sizes(weights, json["num_samples"], 0.005);
  EXPECT_EQ(sizes.used, list<int64_t>(json["used"]));
  EXPECT_EQ(sizes.built, list<int64_t>(json["built"]));
  const BlendIndex index = blend_index(weights, int64_t(json["dataset"].size()));
  EXPECT_EQ(as<int16_t>(index.dataset), list<int16_t>(json["dataset"]));
  EXPECT_EQ(as<int64_t>(index.sample), list<int64_t>(json["sample"]));
}

void check_exhaustive(const Json& json) {
  const BlendIndex index = exhaustive_blend_index(list<int64_t>(json["sizes"]));
  EXPECT_EQ(as<int16_t>(index.dataset), list<int16_t>(json["dataset"]));
  EXPECT_EQ(as<int64_t>(index.sample), list<int64_t>(json["sample"]));
}

void check_cyclic(const Json& json) {
  const BatchCut cut{
      .micro_batch = json["micro"], .data_ranks = json["ranks"], .data_rank = json["rank"]};
  const BatchOrder order({.type = DataloaderType::cyclic, .data_sharding = json["sharding"]}, cut,
                         json["total"].get<int64_t>());
  int64_t consumed = json["consumed"];
  for (const Json& batch : json["batches"]) {
    for (int64_t j = 0; j < cut.micro_batch; ++j)
      ASSERT_EQ(order.at(consumed, j), batch[size_t(j)]) << consumed;
    consumed += cut.micro_batch * cut.data_ranks;
  }
}

void check_shuffle(const Json& json) {
  const auto first = list<int64_t>(json["first"]), second = list<int64_t>(json["second"]);
  NumpyRandomState random(json["seed"].get<uint32_t>());
  for (const auto& wanted : {first, second}) {
    std::vector<int64_t> values(wanted.size());
    std::iota(values.begin(), values.end(), 0);
    random.shuffle(std::span(values));
    EXPECT_EQ(values, wanted);
  }
}

void check_randperm(const Json& json) {
  const std::vector<int64_t> order = torch_randperm(json["n"], json["seed"]);
  for (size_t i = 0; i < json["places"].size(); ++i)
    ASSERT_EQ(order[json["places"][i].get<size_t>()], json["values"][i]) << i;
}

std::map<std::string, int> check_file(const std::string& path) {
  std::ifstream file(path);
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    SCOPED_TRACE(line.substr(0, 300));
    const Json json = Json::parse(line);
    const std::string kind = json["kind"];
    ++counts[kind];
    if (kind == "index") check_index(json);
    if (kind == "blend") check_blend(json);
    if (kind == "exhaustive") check_exhaustive(json);
    if (kind == "cyclic") check_cyclic(json);
    if (kind == "shuffle") check_shuffle(json);
    if (kind == "randperm") check_randperm(json);
    if (::testing::Test::HasFailure()) break;
  }
  return counts;
}

TEST(DatasetCases, AreNumpysAndPyTorchs) {
  const auto counts = check_file(PHX_TEST_DATA "/datasets/cases.jsonl");
  EXPECT_EQ(
      counts,
      (std::map<std::string, int>{
          {"index", 40}, {"blend", 10}, {"exhaustive", 10}, {"cyclic", 10}, {"shuffle", 10}}));
  // scripts/check_datasets.py has more of them.
  if (const char* more = std::getenv("PHX_DATASET_CASES")) {
    EXPECT_FALSE(check_file(more).empty()) << more;
  }
}

}  // namespace
}  // namespace phx
