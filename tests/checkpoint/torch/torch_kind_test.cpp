#include "phalanx/checkpoint/torch/torch_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TorchKind, IsSeenFromTheFolder) {
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch_dist")).kind, TorchKind::torch_dist);
  const auto place = torch_checkpoint_kind(torch_fixture("torch"));  // through its tracker
  EXPECT_EQ(place.kind, TorchKind::torch);
  EXPECT_EQ(place.path, torch_fixture("torch") / "iter_0000030");
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch"), 30).kind, TorchKind::torch);
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch"), 31).kind, TorchKind::none);
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("hf_bin")).kind, TorchKind::none);
  const auto opened = open_torch_checkpoint(torch_fixture("torch"));
  EXPECT_EQ(opened.source->tensors().size(), 27u);
  EXPECT_THAT(error_of([] { open_torch_checkpoint(torch_fixture("hf_bin")); }),
              HasSubstr("hf_bin holds no checkpoint of Megatron"));
}

TEST(TorchKind, AFolderWithoutMegatronsDescriptionIsOfItsFsdp) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "iter_0000007");
  write_file(folder / "iter_0000007/.metadata", "x");
  write_file(folder / "latest_checkpointed_iteration.txt", "7");
  EXPECT_EQ(torch_checkpoint_kind(folder.path()).kind, TorchKind::fsdp_dtensor);
  EXPECT_THAT(error_of([&] { open_torch_checkpoint(folder.path()); }), HasSubstr(".metadata"));
}

TEST(TorchKind, ATrackerMaySayReleaseAndJunkNamesNothing) {
  const TempFolder folder;
  for (const char* name : {"release", "iter_0000012"}) {
    std::filesystem::create_directories(folder / name / "mp_rank_00");
    EXPECT_EQ(torch_checkpoint_kind(folder / name).kind, TorchKind::torch);
  }
  const auto tracked = [&](const std::string& text) {
    write_file(folder / "latest_checkpointed_iteration.txt", text);
    return torch_checkpoint_kind(folder.path()).path.filename().string();
  };
  EXPECT_EQ(tracked("release\n"), "release");
  EXPECT_EQ(tracked("12\n"), "iter_0000012");
  for (const char* junk : {"", "-1", "../release", "12x", "99999999999999999999"})
    EXPECT_EQ(tracked(junk), "") << junk;
}

TEST(TorchKind, KindsHaveTheNamesOfMegatronsFlag) {
  EXPECT_STREQ(name(TorchKind::torch_dist), "torch_dist");
  EXPECT_STREQ(name(TorchKind::torch), "torch");
  EXPECT_STREQ(name(TorchKind::fsdp_dtensor), "fsdp_dtensor");
  EXPECT_STREQ(name(TorchKind::none), "none");
}

}  // namespace
}  // namespace phx
