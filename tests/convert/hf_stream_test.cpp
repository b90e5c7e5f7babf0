#include "phalanx/convert/hf_stream.h"

#include <gtest/gtest.h>

#include <cstring>

#include "convert/tensors_in_memory.h"
#include "phalanx/checkpoint/safetensors.h"

namespace phx {
namespace {

// Every tensor of the folder that the model came from comes back, bit for bit.
TEST(HfStream, IsTheImportBitForBit) {
  for (const char* name : {"llama2", "qwen3", "gpt2", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const HfModel hf(hf_fixture(name));
    const HfFolder folder(hf_fixture(name));
    size_t count = 0;
    const Family& family = for_each_hf_tensor(
        std::make_shared<TensorsInMemory>(*hf.tensors), {.model = hf.config.model},
        [&](const std::string& tensor, const HfTensor& handed) {
          ASSERT_TRUE(folder.tensors().contains(tensor)) << tensor;
          const TensorInfo& info = folder.tensors().at(tensor);
          EXPECT_EQ(handed.info, info) << tensor;
          std::vector<std::byte> bytes(handed.bytes.size());
          folder.read(tensor, whole_box(info.shape), bytes);
          EXPECT_EQ(std::memcmp(bytes.data(), handed.bytes.data(), bytes.size()), 0) << tensor;
          ++count;
        });
    EXPECT_EQ(family.name, hf.config.family->name);
    EXPECT_GT(count, 10u);
  }
}

TEST(HfStream, ConvertsToTheTypeThatIsAskedFor) {
  const HfModel hf(hf_fixture("llama2"));
  int64_t bytes = 0, elements = 0;
  for_each_hf_tensor(std::make_shared<TensorsInMemory>(*hf.tensors),
                     {.model = hf.config.model, .dtype = DType::bf16},
                     [&](const std::string&, const HfTensor& handed) {
                       EXPECT_EQ(handed.info.dtype, DType::bf16);
                       bytes += int64_t(handed.bytes.size());
                       elements += whole_box(handed.info.shape).numel();
                     });
  EXPECT_GT(elements, 0);
  EXPECT_EQ(bytes, 2 * elements);
}

TEST(HfStream, BiasesOfExpertsKeepTheirType) {
  const HfModel hf(hf_fixture("deepseek_v3"));
  int64_t wide = 0;
  for_each_hf_tensor(std::make_shared<TensorsInMemory>(*hf.tensors),
                     {.model = hf.config.model, .dtype = DType::bf16},
                     [&](const std::string& name, const HfTensor& handed) {
                       const bool bias = name.ends_with(".e_score_correction_bias");
                       EXPECT_EQ(handed.info.dtype, bias ? DType::f32 : DType::bf16) << name;
                       wide += bias;
                     });
  EXPECT_EQ(wide, 1);
}

}  // namespace
}  // namespace phx
