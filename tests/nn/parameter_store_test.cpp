#include "phalanx/nn/parameter_store.h"

#include <gtest/gtest.h>

#include <memory>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

class TwoKinds : public Module {
 public:
  TwoKinds()
      : norm(whole({5}, Init::constant(1))),
        matrix(whole({2, 3}, Init::normal(1))),
        bias(whole({2}, Init::constant(0))) {
    add_parameter("norm", norm);
    add_parameter("matrix", matrix);
    add_parameter("bias", bias);
  }
  Parameter norm, matrix, bias;
};

TEST(ParameterStore, PutsDecayedParametersIntoOneRun) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {});
  ASSERT_EQ(store.runs().size(), 2u);
  EXPECT_TRUE(store.runs()[0].decays);
  EXPECT_EQ(store.parameters()[0]->name(), "matrix");
  EXPECT_EQ(store.num_elements(), 13);
  TwoKinds other;
  ParameterStore also(other, test_device(),
                      {.also_decays = [](const std::string& name) { return name == "norm"; }});
  EXPECT_EQ(also.parameters()[2]->name(), "bias");
}

TEST(ParameterStore, ARunEndsWhereTheLearningRateIsAnother) {
  TwoKinds module;
  ParameterStore store(module, test_device(),
                       {.decoupled = [](const std::string& name) { return name == "bias"; }});
  ASSERT_EQ(store.runs().size(), 3u);  // matrix | norm | bias
  EXPECT_FALSE(store.runs()[1].decoupled);
  EXPECT_TRUE(store.runs()[2].decoupled);
  EXPECT_FALSE(store.runs()[2].decays);
  EXPECT_EQ(store.runs()[2].offset, store.offset_of(2));
  EXPECT_EQ(store.runs()[2].offset + store.runs()[2].count, store.weights().numel());
}

TEST(ParameterStore, NormsAndBiasesHaveBucketsOfTheirOwn) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {.bucket_elements = 1000000, .cut = {.ranks = 4}});
  ASSERT_EQ(store.buckets().size(), 2u);
  EXPECT_FALSE(store.buckets()[0].vectors);
  EXPECT_TRUE(store.buckets()[1].vectors);
  EXPECT_EQ(store.buckets()[0].parameters, std::vector<size_t>{0});  // the matrix
  EXPECT_EQ(store.buckets()[1].range.count % 4, 0);
  EXPECT_EQ(store.buckets()[1].range.end(), store.all().end());
  TwoKinds other;
  EXPECT_EQ(ParameterStore(other, test_device(), {}).buckets().size(), 1u) << "nothing to overlap";
}

TEST(ParameterStore, TwoStoresShareAModelByNames) {
  TwoKinds module;
  const auto is_norm = [](const std::string& name) { return name == "norm"; };
  const ParameterStore trained(module, test_device(),
                               {.only = [&](const std::string& name) { return !is_norm(name); }});
  const ParameterStore frozen(module, test_device(), {.gradients = false, .only = is_norm});
  EXPECT_EQ(trained.num_elements(), 8);
  EXPECT_EQ(frozen.num_elements(), 5);
  EXPECT_TRUE(module.matrix.gradient().defined());
  EXPECT_FALSE(module.norm.gradient().defined());
  EXPECT_EQ(to_values(module.norm.value()), std::vector<double>(5, 1));
}

TEST(ParameterStore, AStoreThatHoldsNothingTakesNoMemoryUnlessItIsTrained) {
  TwoKinds module;
  const auto nothing = [](const std::string&) { return false; };
  const ParameterStore frozen(module, test_device(), {.gradients = false, .only = nothing});
  EXPECT_FALSE(frozen.weights().defined());
  const ParameterStore trained(module, test_device(), {.only = nothing});
  EXPECT_EQ(trained.weights().numel(), 0);
  EXPECT_EQ(trained.gradients().numel(), 0);
}

TEST(ParameterStore, NamesAParameterThatDoesNotExist) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {});
  EXPECT_EQ(error_of([&] { store.find("weight"); }), "the model has no parameter 'weight'");
}

TEST(ParameterStore, OffersTheNearestName) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {});
  EXPECT_EQ(error_of([&] { store.find("matrx"); }),
            "the model has no parameter 'matrx'\n  hint: did you mean 'matrix'?");
  EXPECT_EQ(&store.find("matrix"), &module.matrix);
}

TEST(ParameterStore, ParametersBeginAtMultiplesOf128AndPaddingIsZero) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {.dtype = DType::f64});
  EXPECT_EQ(store.offset_of(0), 0);
  EXPECT_EQ(store.offset_of(1), 128);
  EXPECT_EQ(store.offset_of(2), 256);
  EXPECT_EQ(store.all(), (FlatRange{0, 384}));
  const std::vector<double> weights = to_values(store.weights());
  EXPECT_NE(weights[5], 0.0);  // the last element of the matrix
  EXPECT_EQ(std::vector<double>(weights.begin() + 6, weights.begin() + 128),
            std::vector<double>(122, 0.0));
  EXPECT_EQ(weights[128 + 4], 1.0);  // the norm
  module.norm.value().data<double>()[0] = 9;
  EXPECT_EQ(to_values(store.weights())[128], 9.0) << "a parameter is a part of the buffer";
}

TEST(ParameterStore, ABucketIsClosedWhenItIsFullAndIsCutEvenly) {
  class Three : public Module {
   public:
    Three() {
      for (const char* name : {"a", "b", "c"})
        add_parameter(name, *parameters.emplace_back(
                                std::make_unique<Parameter>(whole({2, 100}, Init::constant(1)))));
    }
    std::vector<std::unique_ptr<Parameter>> parameters;
  } module;
  ParameterStore store(module, test_device(), {.bucket_elements = 500, .cut = {.ranks = 3}});
  ASSERT_EQ(store.buckets().size(), 2u);  // 256 + 256 elements, then 256
  EXPECT_EQ(store.buckets()[0].parameters, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(store.buckets()[0].range, (FlatRange{0, 768}));  // 512, up to a multiple of 3 x 128
  EXPECT_EQ(store.buckets()[1].range, (FlatRange{768, 384}));
  EXPECT_EQ(store.offset_of(2), 768);
  EXPECT_EQ(store.runs().size(), 1u);
  EXPECT_EQ(store.runs()[0].count, 1152) << "padding belongs to the run before it";
}

// FSDP with one data-parallel rank: every unit has its bucket, and nothing is elsewhere.
TEST(ParameterStore, OneRankKeepsAllUnitsAsOneRange) {
  TwoKinds module;
  ParameterStore store(module, test_device(),
                       {.unit = [](const std::string& name) { return name; },
                        .shard_weights = true,
                        .shard_gradients = true});
  ASSERT_EQ(store.buckets().size(), 3u);
  EXPECT_EQ(store.kept_weights(), std::vector{store.all()});
  EXPECT_EQ(store.kept_gradients(), std::vector{store.all()});
  EXPECT_EQ(store.weights(store.all()).numel(), store.all().count);
  TwoKinds other;
  ParameterStore second(other, test_device(),
                        {.cut = {.ranks = 2, .rank = 1},
                         .unit = [](const std::string& name) { return name; },
                         .shard_weights = true});
  EXPECT_EQ(second.kept_weights().size(), 3u) << "a piece of each bucket, apart from each other";
}

TEST(ParameterStore, ClassesLieTogetherTheLowerOnesFirst) {
  TwoKinds module;
  ParameterStore store(module, test_device(), {.reduction_class = [](const Parameter& p) {
                         return p.name() == "norm" ? 1 : 0;
                       }});
  EXPECT_EQ(store.parameters()[0]->name(), "matrix");
  EXPECT_EQ(store.parameters()[1]->name(), "bias");
  EXPECT_EQ(store.parameters()[2]->name(), "norm");
}

TEST(ParameterStore, RangesOfNeighboursAreJoined) {
  TwoKinds module;  // matrix, norm, bias
  ParameterStore store(module, test_device(), {});
  const auto picked = [&](const std::string& without) {
    return store.ranges([&](const Parameter& p) { return p.name() != without; });
  };
  EXPECT_EQ(picked(""), (std::vector<FlatRange>{{0, 256 + 2}}));
  EXPECT_EQ(picked("norm"), (std::vector<FlatRange>{{0, 6}, {256, 2}}));
  EXPECT_TRUE(store.ranges([](const Parameter&) { return false; }).empty());
}

TEST(ParameterStore, ListsOfRangesAreIntersected) {
  const std::vector<FlatRange> a = {{0, 10}, {20, 10}}, b = {{5, 20}, {28, 100}}, none;
  EXPECT_EQ(intersection(a, b), (std::vector<FlatRange>{{5, 5}, {20, 5}, {28, 2}}));
  EXPECT_EQ(intersection(b, a), intersection(a, b));
  EXPECT_TRUE(intersection(a, none).empty());
  const std::vector<FlatRange> beside = {{10, 10}};
  EXPECT_TRUE(intersection(a, beside).empty());
}

TEST(ParameterStore, GradientsAreWideAndForTrainingOnly) {
  TwoKinds trained, asked;
  ParameterStore bf16_weights(trained, test_device(), {.dtype = DType::bf16});
  EXPECT_EQ(bf16_weights.gradients().dtype(), DType::f32);
  ParameterStore inference(asked, test_device(), {.gradients = false});
  EXPECT_FALSE(inference.gradients().defined());
}

}  // namespace
}  // namespace phx
