#include "phalanx/data/gpt/datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/gpt/five_documents.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(Datasets, ABlendMixesPairsByWeight) {
  FiveDocuments data;
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
  FiveDocuments data;
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
  FiveDocuments data;
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

TEST(Datasets, ASplitWithoutDocumentsIsNoneButForTraining) {
  FiveDocuments data;
  data.config.split = "0.99,0.01";
  EXPECT_EQ(make_datasets(data.config, data.request)[2], nullptr) << "it was not asked for";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(make_datasets(data.config, data.request)[1], nullptr);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStdout(),
      HasSubstr("pair has 5 documents, and --split leaves none of them for the validation"));
  data.config.split = "0.01,0.99";
  EXPECT_THAT(error_of([&] { make_datasets(data.config, data.request); }),
              HasSubstr("pair has 5 documents, and --split leaves none of them for training"));
}

TEST(Datasets, WhatIsWrongWithAListOfBlendsIsNamed) {
  FiveDocuments data;
  data.config.data_path = {};
  const std::string path = data.folder / "blend.json";
  data.config.per_split_data_args_path = path;
  const auto error = [&](const char* json) {
    write_file(path, json);
    return error_of([&] { blend_of(data.config, Split::train); });
  };
  EXPECT_EQ(error("[1]"), "--per-split-data-args-path " + path +
                              " should hold a JSON object with lists called train, valid and test");
  EXPECT_EQ(error(R"({"training": []})"), path + ": training is none of train, valid and test");
  EXPECT_EQ(error(R"({"train": "a"})"), path + ": train should be a list");
  EXPECT_EQ(error(R"({"valid": ["a"]})"), path + " names nothing to train on");
  EXPECT_EQ(error(R"({"train": [0, "a"]})"),
            path + ": train gives a the weight 0; a weight is above 0");
}

TEST(Datasets, TheBlendOfASplitIsItsOwnOrTheCommonOne) {
  DataConfig config;
  config.data_path = {"3", "a", "1", "b"};
  EXPECT_EQ(blend_of(config, Split::valid).prefixes, (std::vector<std::string>{"a", "b"}));
  config.data_path = {};
  EXPECT_EQ(error_of([&] { blend_of(config, Split::train); }), "--data-path names no data");
  config.train_data_path = {"a"};
  config.valid_data_path = {"c"};
  EXPECT_EQ(blend_of(config, Split::valid).prefixes, (std::vector<std::string>{"c"}));
  EXPECT_TRUE(blend_of(config, Split::test).empty());
}

}  // namespace
}  // namespace phx
