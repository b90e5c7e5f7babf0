// Megatron-LM's own torch_dist checkpoints: megatron_runs.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/torch_fixture.h"
#include "cli/captured.h"
#include "cli/logits_difference.h"
#include "cli/megatron_runs.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/report/metrics.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing::megatron;
using ::phx::testing::logits_difference;
using ::phx::testing::run;
using ::testing::HasSubstr;

struct Saved {
  const char* name;
  double loss;           // tolerance
  int extra_states = 4;  // of the linear layers: four in each layer, two of each expert
};

// fp32: other orders of sums of numbers near 3. In bf16 every activation is rounded, and by other
// orders differently: five times the largest difference seen, 3.3e-4.
const Saved kSaved[] = {
    {"llama_tp2_dp", 1e-6},       {"gpt2_pp2_dp", 1e-6, 8},        {"gpt2_full", 1e-6},
    {"llama_bf16_plain", 1.6e-3}, {"gpt2_bf16_dp", 1.6e-3},        {"moe_ep2_dp", 1e-6, 10},
    {"moe_bf16_dp", 1.6e-3, 10},  {"moe_freq_ep2_full", 1e-6, 16}, {"moe_bias_ep2_dp", 1e-6, 10},
    {"mtp_dp", 1e-6, 14},
};

class MegatronTorchDist : public ::testing::TestWithParam<Saved> {
 protected:
  Path folder() const { return fixture(GetParam().name); }

  void expect_losses(const Path& metrics) const {
    const auto losses = read_losses(metrics).train;
    const auto theirs = about(folder()).at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i)
      EXPECT_NEAR(losses[i].second, theirs[i], GetParam().loss) << "iteration " << 4 + i;
  }
};

TEST_P(MegatronTorchDist, LogitsAreMegatrons) {
  EXPECT_LE(logits_difference({"--megatron", folder()}, folder() / "logits.safetensors"), 1e-6);
}

// Adam's moments, its step, masters and schedules: a run without one of them drifts at once.
TEST_P(MegatronTorchDist, AnImportGoesOnAsMegatron) {
  const TempFolder out;
  const auto imported =
      run({"convert", "import", "--megatron", folder(), "--native", out / "native"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("optimizer state among them"));
  const auto outcome = run(words(pretrain(GetParam().name, out / "native", out) +
                                 str_cat("--metrics-file ", (out / "metrics.jsonl").string())));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  expect_losses(out / "metrics.jsonl");
}

TEST_P(MegatronTorchDist, ItsFolderIsLoadedAsItIs) {
  const TempFolder out;
  const auto outcome = run(words(pretrain(GetParam().name, folder(), out) +
                                 str_cat("--metrics-file ", (out / "metrics.jsonl").string())));
  ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  expect_losses(out / "metrics.jsonl");
}

// Out to torch_dist and back: every tensor to the bit, counters and schedules too.
TEST_P(MegatronTorchDist, ExportsAreReadAgain) {
  const TempFolder out;
  const std::string first = out / "first", exported = out / "exported", second = out / "second";
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"convert", "import", "--megatron", folder(), "--native", first},
           {"convert", "export", "--native", first, "--torch-dist", exported, "--optimizer"},
           {"convert", "import", "--megatron", exported, "--native", second}}) {
    const auto outcome = run(command);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  const NativeCheckpoint before(checkpoint_path(first, 3)), after(checkpoint_path(second, 3));
  EXPECT_EQ(after.info("state"), before.info("state"));
  EXPECT_EQ(parse_json(after.info("schedule")), parse_json(before.info("schedule")));
  EXPECT_EQ(parse_json(after.info("options")), parse_json(before.info("options")));
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const auto& [name, info] : before.tensors())
    EXPECT_EQ(read_numbers(after, name), read_numbers(before, name)) << name;
}

// With its default strictness Megatron loads a checkpoint that has all keys it asks for, and these
// are the keys of its own. It does not ask for the three that are left out here.
TEST_P(MegatronTorchDist, ExportsHaveTheKeysOfMegatronsOwn) {
  const TempFolder out;
  const std::string native = out / "native", exported = out / "exported";
  ASSERT_EQ(run({"convert", "import", "--megatron", folder(), "--native", native}).code, 0);
  const auto outcome =
      run({"convert", "export", "--native", native, "--torch-dist", exported, "--optimizer"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Path iteration = checkpoint_path(exported, 3);
  const auto ours = keys(iteration);
  int extra_states = 0;
  for (const std::string& key : keys(folder() / "iter_0000003")) {
    if (key.starts_with("rerun_state_machine_state/")) continue;  // loaded if it is there
    // Exports are fully reshardable.
    if (key.starts_with("optimizer.distributed.") || key.starts_with("optimizer.chained_"))
      continue;
    if (key == "common_state/shard_0_1") continue;  // common.pt, as in older versions
    EXPECT_TRUE(ours.contains(key)) << key;
    extra_states += key.find("._extra_state/shard_") != key.npos;
  }
  EXPECT_EQ(extra_states, GetParam().extra_states);
  EXPECT_TRUE(std::filesystem::exists(iteration / "common.pt"));
  const TorchDistCheckpoint checkpoint(iteration);
  for (const auto& [tensor, info] : checkpoint.tensors()) {
    if (tensor.starts_with("optimizer.") || is_buffer(tensor)) continue;
    for (const char* kind : {"exp_avg.", "exp_avg_sq."})
      EXPECT_TRUE(checkpoint.tensors().contains(str_cat("optimizer.", kind, tensor))) << tensor;
  }
}

// A tensor of another shape or type would be refused there, or converted without a word.
TEST_P(MegatronTorchDist, ExportsHaveTheShapesAndTypesOfMegatronsOwn) {
  const TempFolder out;
  const std::string native = out / "native", exported = out / "exported";
  ASSERT_EQ(run({"convert", "import", "--megatron", folder(), "--native", native}).code, 0);
  const auto outcome =
      run({"convert", "export", "--native", native, "--torch-dist", exported, "--optimizer"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto ours = TorchDistMetadata::read(checkpoint_path(exported, 3) / ".metadata").tensors;
  int weights = 0, states = 0;
  for (const auto& [key, theirs] :
       TorchDistMetadata::read(folder() / "iter_0000003" / ".metadata").tensors) {
    const auto our = ours.find(key);
    if (our == ours.end()) continue;  // buckets; the test above says which keys have to be there
    EXPECT_EQ(describe(our->second.info), describe(theirs.info)) << key;
    ++(key.starts_with("optimizer.state.") ? states : weights);
  }
  EXPECT_GE(weights, 8);
  // Megatron's own have the model's shapes where they are fully reshardable, or not distributed.
  const std::string name = GetParam().name;
  const bool shaped = name.ends_with("_full") || name.ends_with("_plain");
  EXPECT_EQ(states, shaped ? 3 * weights : 0);  // exp_avg, exp_avg_sq and the master
}

// Weights alone have the same keys, but for the optimizer's: Megatron loads them with
// --no-load-optim.
TEST_P(MegatronTorchDist, ExportsOfWeightsHaveTheKeysOfMegatronsOwn) {
  const TempFolder out;
  const std::string native = out / "native", exported = out / "exported";
  ASSERT_EQ(run({"convert", "import", "--megatron", folder(), "--native", native}).code, 0);
  const auto outcome = run({"convert", "export", "--native", native, "--torch-dist", exported});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto ours = keys(checkpoint_path(exported, 3));
  int compared = 0;
  for (const std::string& key : keys(folder() / "iter_0000003")) {
    if (!key.starts_with("decoder.") && !key.starts_with("embedding.") &&
        !key.starts_with("output_layer."))
      continue;
    EXPECT_TRUE(ours.contains(key)) << key;
    ++compared;
  }
  EXPECT_GE(compared, 12);
  for (const std::string& key : ours) EXPECT_FALSE(key.starts_with("optimizer.")) << key;
}

INSTANTIATE_TEST_SUITE_P(Cases, MegatronTorchDist, ::testing::ValuesIn(kSaved),
                         [](const auto& info) { return std::string(info.param.name); });

// fp32 masters in the buckets are the weights: every element stands where its parameter's does.
TEST(MegatronBuckets, MastersAreTheWeights) {
  for (const char* name : {"llama_tp2_dp", "gpt2_pp2_dp", "moe_ep2_dp"}) {
    const TorchDistCheckpoint checkpoint(fixture(name) / "iter_0000003");
    EXPECT_TRUE(checkpoint.notes().empty()) << checkpoint.notes()[0];
    for (const auto& [tensor, info] : checkpoint.tensors()) {
      if (tensor.starts_with("optimizer.")) continue;
      const auto weights = read_numbers(checkpoint, tensor);
      EXPECT_EQ(read_numbers(checkpoint, "optimizer.master." + tensor), weights) << tensor;
      for (double square : read_numbers(checkpoint, "optimizer.exp_avg_sq." + tensor))
        ASSERT_GE(square, 0) << tensor;
      // A box within, which no rank's part begins or ends with.
      if (info.shape.size() != 2) continue;
      const Box box{{1, 1}, {info.shape[0] - 2, info.shape[1] - 2}};
      EXPECT_EQ(read_numbers(checkpoint, "optimizer.master." + tensor, box),
                read_numbers(checkpoint, tensor, box))
          << tensor;
    }
  }
}

// Nothing names the parameters in a bucket. Where weights and masters do not fit, the state is
// somebody else's, and is refused.
TEST(MegatronBuckets, StateThatDoesNotFitTheWeightsIsRefused) {
  const TempFolder out;
  const Path copy = out / "copy";
  std::filesystem::copy(fixture("gpt2_pp2_dp"), copy, std::filesystem::copy_options::recursive);
  const Path iteration = copy / "iter_0000003";
  auto metadata = TorchDistMetadata::read(iteration / ".metadata");
  // Two parameters of eight numbers change places.
  for (auto& [key, tensor] : metadata.tensors) {
    if (!key.starts_with("optimizer.distributed.") || !key.ends_with(".param")) continue;
    std::vector<TorchDistChunk*> eights;
    for (TorchDistChunk& chunk : tensor.chunks)
      if (chunk.box.size[0] == 8) eights.push_back(&chunk);
    if (eights.size() >= 2) std::swap(eights.front()->place, eights.back()->place);
  }
  write_file(iteration / ".metadata", pickled_metadata(metadata));

  const std::vector<std::string> import = {"convert", "import",   "--megatron",
                                           copy,      "--native", out / "native"};
  const auto imported = run(import);
  EXPECT_NE(imported.code, 0);
  EXPECT_THAT(imported.err, HasSubstr("the masters in its buckets are not those of the weights"));
  EXPECT_THAT(imported.err, HasSubstr("--weights-only"));
  const std::string train = pretrain("gpt2_pp2_dp", copy, out);
  const auto loaded = run(words(train));
  EXPECT_NE(loaded.code, 0);
  EXPECT_THAT(loaded.err, HasSubstr("--no-load-optim"));
  EXPECT_EQ(run(words(train + "--no-load-optim")).code, 0);
}

// The same in bf16: the weights are the masters rounded, at every element.
TEST(MegatronBuckets, SixteenBitWeightsAreTheirMastersRounded) {
  const TorchDistCheckpoint checkpoint(fixture("gpt2_bf16_dp") / "iter_0000003");
  EXPECT_TRUE(checkpoint.notes().empty()) << checkpoint.notes()[0];
  size_t weights = 0;
  for (const auto& [tensor, info] : checkpoint.tensors()) {
    if (tensor.starts_with("optimizer.")) continue;
    ++weights;
    EXPECT_EQ(info.dtype, DType::bf16);
    std::vector<double> rounded;
    for (const double master : read_numbers(checkpoint, "optimizer.master." + tensor))
      rounded.push_back(float(bf16(float(master))));
    EXPECT_EQ(rounded, read_numbers(checkpoint, tensor)) << tensor;
  }
  EXPECT_EQ(weights, 16u);
}

TEST(MegatronBuckets, DamagedStateIsAnErrorOnlyForThoseWhoWantIt) {
  const TempFolder out;
  EditedTorchDist edited(fixture("gpt2_bf16_dp") / "iter_0000003", out / "copy");
  for (auto& [key, tensor] : edited.metadata.tensors)
    if (key.starts_with("optimizer.distributed.") && key.ends_with(".param"))
      ++tensor.chunks[0].place.offset;  // no archive begins there
  edited.save();
  const std::string native = out / "native";
  const std::vector<std::string> import = {"convert",   "import",   "--megatron",
                                           edited.path, "--native", native};
  const auto outcome = run(import);
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("its optimizer state (dp_reshardable) cannot be read"));
  EXPECT_THAT(outcome.err, HasSubstr("--weights-only"));
  auto weights_only = import;
  weights_only.push_back("--weights-only");
  EXPECT_EQ(run(weights_only).code, 0);
}

TEST(MegatronCommonState, ThatIsNoDictIsAnErrorThatNamesTheFile) {
  const TempFolder out;
  const Path copy = out / "copy";
  std::filesystem::copy(fixture("gpt2_full") / "iter_0000003", copy,
                        std::filesystem::copy_options::recursive);
  auto metadata = TorchDistMetadata::read(copy / ".metadata");
  // A list of None, as modules without extra state have it.
  metadata.objects["common_state/shard_0_1"] =
      metadata.objects.at("decoder.layers.mlp.linear_fc1._extra_state/shard_0_1");
  write_file(copy / ".metadata", pickled_metadata(metadata));
  const auto outcome = run({"convert", "import", "--megatron", copy, "--native", out / "native"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("__0_0.distcp: common_state/shard_0_1 is a list of 1"));
}

TEST(MegatronSchedules, AnotherLearningRateIsRefusedByName) {
  const TempFolder out;
  const auto outcome = run(words(pretrain("gpt2_full", fixture("gpt2_full"), out) + "--lr 2e-2"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--lr: 0.01 in the checkpoint, 0.02 now"));
  const auto forced = run(words(pretrain("gpt2_full", fixture("gpt2_full"), out) +
                                "--lr 2e-2 --override-opt-param-scheduler"));
  EXPECT_EQ(forced.code, 0) << forced.err;
}

// The import knows the schedules of Megatron's run, and does not call them unset.
TEST(MegatronSchedules, AnImportKeepsThem) {
  const TempFolder out;
  const std::string native = out / "native";
  ASSERT_EQ(run({"convert", "import", "--megatron", fixture("gpt2_full"), "--native", native}).code,
            0);
  const auto options = parse_json(NativeCheckpoint(checkpoint_path(native, 3)).info("options"));
  EXPECT_EQ(options.at("lr"), 1e-2);
  EXPECT_EQ(options.at("min_lr"), 1e-3);
  EXPECT_EQ(options.at("lr_decay_style"), "cosine");
  EXPECT_EQ(options.at("lr_warmup_iters"), 1);
  EXPECT_EQ(options.at("weight_decay"), 0.1);
  const auto outcome = run(words(pretrain("gpt2_full", native, out) + "--lr 2e-2"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("--lr: 0.01 in the checkpoint, 0.02 now"));
}

// Which GELU is computed does not matter to SwiGLU.
TEST(MegatronSwiglu, IsNotRefusedOverTheFusionOfGelu) {
  const TempFolder out;
  const std::string name = "llama_tp2_dp", native = out / "native";
  ASSERT_EQ(run({"convert", "import", "--megatron", fixture(name), "--native", native}).code, 0);
  for (const std::string& load : {native, fixture(name).string()}) {
    for (const char* flag : {"--bias-gelu-fusion", "--no-bias-gelu-fusion"}) {
      const auto outcome = run(words(pretrain(name, load, out) + flag));
      EXPECT_EQ(outcome.code, 0) << load << " " << flag << "\n" << outcome.err;
    }
  }
}

TEST(MegatronSchedules, AnotherLengthIsRefused) {
  const TempFolder out;
  const auto outcome =
      run(words(pretrain("gpt2_full", fixture("gpt2_full"), out) + "--train-iters 9"));
  EXPECT_NE(outcome.code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("the run's length, which the learning rate follows"));
}

}  // namespace
}  // namespace phx
