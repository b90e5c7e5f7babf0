#include "phalanx/verify/resume.h"

#include <gtest/gtest.h>

#include <atomic>

#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using testing::tiny_run;

TEST(Resume, TheRunsOwnPlacesAndLengthAreReplaced) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.train.train_iters = 1000;
  config.train.save = (folder / "never").string();
  config.train.exit_interval = 1;
  make_folder(folder / "proof");
  const ResumeProof proof = prove_resume(config, Sources(config), 1, 4, folder / "proof");
  EXPECT_TRUE(proof.faults.empty()) << proof.faults[0];
  EXPECT_EQ(proof.losses.size(), 4u);
  EXPECT_GT(proof.tensors, 0);
  EXPECT_GT(proof.bytes, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "never"));
  EXPECT_TRUE(std::filesystem::exists(folder / "proof" / "parts"));
}

TEST(Resume, ARunOfOneIterationHasNoMiddle) {
  const TempFolder folder;
  const RunConfig config = tiny_run();
  EXPECT_EQ(error_of([&] { prove_resume(config, Sources(config), 1, 1, folder.path()); }),
            "a run of 1 iterations has no middle");
}

// Samples that are others whenever they are read again.
class Changing : public SampleSource {
 public:
  explicit Changing(std::shared_ptr<const SampleSource> source) : source_(std::move(source)) {}
  void sample(int64_t index, Sample& out) const override {
    source_->sample(index, out);
    out.tokens[0] = int32_t(++reads_ % 61);
  }
  SampleParts parts() const override { return source_->parts(); }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  mutable std::atomic<int64_t> reads_ = 0;
};

TEST(Resume, WhatDiffersIsNamed) {
  const TempFolder folder;
  const RunConfig config = tiny_run();
  Sources sources(config);
  sources.train = std::make_shared<Changing>(sources.train);
  const ResumeProof proof = prove_resume(config, sources, 1, 4, folder.path());
  ASSERT_FALSE(proof.faults.empty());
  EXPECT_TRUE(proof.faults[0].starts_with("metrics: ")) << proof.faults[0];
  EXPECT_TRUE(proof.faults.back().ends_with(" differs")) << proof.faults.back();
}

}  // namespace
}  // namespace phx
