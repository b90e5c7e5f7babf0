#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/catalogue_facts.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

TEST(MegatronCatalogueRanks, NamesAreThereOnceAndStandForNoOption) {
  expect_sound(rank_catalogue());
}

TEST(MegatronCatalogueRanks, WhatTunesTrafficIsTakenAndOtherKindsOfParallelismRefused) {
  EXPECT_EQ(told({"--use-sharp"}), "implied --use-sharp\n");
  EXPECT_EQ(told({"--distributed-backend", "nccl"}), "implied --distributed-backend\n");
  EXPECT_THAT(told({"--hybrid-context-parallel"}), HasSubstr("this kind of parallelism is not"));
  EXPECT_THAT(told({"--model-parallel-size", "2"}),
              HasSubstr("this is the old name of the tensor-parallel size"));
}

}  // namespace
}  // namespace phx
