// Which elements dropout drops depends on the token alone, not on the rank that computes it. The
// first stage of a pipeline that holds no layer gives the embedding after its dropout: its zeros
// are the mask.
#include <gtest/gtest.h>

#include <algorithm>

#include "phalanx/comm/thread_world.h"
#include "verify/matrix_models.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kSamples = 4, kLength = 8, kFirstSample = 100;

// Tokens of samples `first` .. `first + count - 1`: [s, b]
Tensor tokens(int64_t first, int64_t count, Device device) {
  std::vector<int64_t> ids;
  for (int64_t s = 0; s < kLength; ++s)
    for (int64_t b = first; b < first + count; ++b) ids.push_back((7 * b + 3 * s) % 53);
  return from_ints(ids, {kLength, count}, DType::i64, device);
}

// The masked embedding of those samples: [s, b, h]
std::vector<double> masked(const TensorParallel& tp, int64_t first, int64_t count) {
  RunConfig config;
  gpt2_like(config);
  config.model.num_layers = 1;
  config.model.hidden_dropout = 0.3;
  Runtime runtime({.kind = DeviceKind::cpu, .threads = 1});
  const std::unique_ptr<Model> model =
      config.family(config.model, {.ranks = {.tp = tp}, .part = {.num_layers = 0, .end = false}});
  const ParameterStore store(*model, runtime.device(), {.dtype = DType::f64});
  model->prepare(runtime.device(), DType::f64, kLength, count);
  const Batch batch{.tensors = {{"tokens", tokens(first, count, runtime.device())}}};
  const ModelOutput output =
      model->forward({}, batch, /*grad_scale=*/{},
                     {.seed = 5, .step = 3, .samples = {.first = kFirstSample + first}});
  return to_values(gather_sequence(output.message.at("hidden").detach(), tp));
}

TEST(DropoutMasks, AreTheSameOnTensorParallelRanks) {
  const std::vector<double> whole = masked({}, 0, kSamples);
  const double dropped = double(std::ranges::count(whole, 0.0)) / double(whole.size());
  // 1024 draws: the standard deviation is sqrt(0.21 / 1024) = 0.014.
  EXPECT_NEAR(dropped, 0.3, 5 * 0.014);
  for (const bool sequence : {false, true}) {
    run_thread_ranks(4, {}, [&](World& world) {
      const auto group = world.group({0, 1, 2, 3}, "tp");
      EXPECT_EQ(masked({.group = group.get(), .sequence = sequence}, 0, kSamples), whole);
    });
  }
}

TEST(DropoutMasks, AreTheSameInSmallerMicroBatches) {
  const std::vector<double> whole = masked({}, 0, kSamples);
  const size_t h = whole.size() / size_t(kSamples * kLength);
  for (int64_t b = 0; b < kSamples; ++b) {
    const std::vector<double> one = masked({}, b, 1);
    for (size_t s = 0; s < size_t(kLength); ++s)
      EXPECT_TRUE(std::equal(one.begin() + long(s * h), one.begin() + long((s + 1) * h),
                             whole.begin() + long((s * kSamples + size_t(b)) * h)))
          << "sample " << b << ", position " << s;
  }
}

}  // namespace
}  // namespace phx
