// Tools to look into sources, and the Hugging Face folders of the tests.
#pragma once

#include <random>

#include "checkpoint/memory_source.h"
#include "phalanx/convert/hf_folder.h"

namespace phx {

inline Box random_box(const std::vector<int64_t>& shape, std::mt19937& random) {
  Box box;
  for (const int64_t extent : shape) {
    const int64_t begin = std::uniform_int_distribution<int64_t>(0, extent)(random);
    box.begin.push_back(begin);
    box.size.push_back(std::uniform_int_distribution<int64_t>(0, extent - begin)(random));
  }
  return box;
}

inline Path hf_fixture(const std::string& name) { return Path(PHX_TEST_DATA) / "hf" / name; }

inline constexpr const char* kHfFixtures[] = {"gpt2",
                                              "llama2",
                                              "llama3",
                                              "llama_bias",
                                              "llama_bin",
                                              "mistral",
                                              "qwen2",
                                              "qwen2_yarn",
                                              "qwen3",
                                              "mixtral",
                                              "qwen2_moe",
                                              "qwen3_moe",
                                              "qwen3_moe_old",
                                              "olmoe",
                                              "gemma1",
                                              "gemma2",
                                              "gemma3",
                                              "deepseek_v2",
                                              "deepseek_v2_groups",
                                              "deepseek_v3"};

}  // namespace phx
