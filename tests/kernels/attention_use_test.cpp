#include "phalanx/kernels/attention_use.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

// Attention over [s, b, h] of two heads of 16 on a meta device that stands for `target`.
void attend(Runtime& meta, DType dtype, const AttentionOptions& options, AttentionPass pass) {
  const Tensor x = empty({8, 1, 32}, dtype, meta.device());  // [s, b, h]
  const HeadView view = heads_of(x, 16, 0, 2);
  meta.extension<AttentionUse>().note({.q = view, .k = view, .v = view}, options, pass);
}

std::vector<std::string> texts(Runtime& meta) {
  std::vector<std::string> list;
  for (const AttentionUse::Line& line : meta.extension<AttentionUse>().lines())
    list.push_back((line.slow ? "slow: " : "") + line.text);
  return list;
}

TEST(AttentionUse, TellsBothPassesOnceEach) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  EXPECT_TRUE(texts(meta).empty());
  for (int i = 0; i < 3; ++i) {
    attend(meta, DType::bf16, {}, AttentionPass::backward);
    attend(meta, DType::bf16, {}, AttentionPass::forward);
  }
  EXPECT_EQ(texts(meta),
            (std::vector<std::string>{"attention forward: cuDNN", "attention backward: cuDNN"}));
}

TEST(AttentionUse, OurOwnKernelsAreSlowAndHaveAReason) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  attend(meta, DType::f32, {}, AttentionPass::forward);
  EXPECT_EQ(texts(meta),
            (std::vector<std::string>{"slow: attention forward: our own kernels, several times "
                                      "slower; cuDNN's attention takes 16-bit types only"}));
}

TEST(AttentionUse, PackedSequencesAreToldApart) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const Tensor x = empty({8, 1, 32}, DType::bf16, meta.device());
  const HeadView view = heads_of(x, 16, 0, 2);
  attend(meta, DType::bf16, {}, AttentionPass::forward);
  meta.extension<AttentionUse>().note({.q = view,
                                       .k = view,
                                       .v = view,
                                       .cu_seqlens = empty({3}, DType::i32, meta.device()),
                                       .max_seqlen = 5},
                                      {}, AttentionPass::forward);
  EXPECT_EQ(texts(meta), (std::vector<std::string>{"attention forward: cuDNN",
                                                   "packed attention forward: cuDNN"}));
}

TEST(AttentionUse, HasNothingToSayOfACpu) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
  attend(meta, DType::f32, {}, AttentionPass::forward);
  EXPECT_TRUE(texts(meta).empty());
}

}  // namespace
}  // namespace phx::kernels
