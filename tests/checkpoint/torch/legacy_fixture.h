// Torch folders that Megatron-LM itself saved (scripts/check_megatron_legacy.py --fixtures), and
// what tests change in them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/torch_folder.h"
#include "phalanx/checkpoint/torch/torch_optimizer.h"
#include "support/temp_folder.h"

namespace phx {

inline Path legacy(const std::string& name) {
  return Path(PHX_TEST_DATA) / "megatron_legacy" / name / "iter_0000003";
}

inline bool is_weight(const std::string& name) { return !name.starts_with("optimizer."); }

inline size_t num_weights(const TensorSource& source) {
  return size_t(std::ranges::count_if(source.tensors(),
                                      [](const auto& item) { return is_weight(item.first); }));
}

class ChangedFolder : public ::testing::Test {
 protected:
  Path copy(const std::string& name) {
    const Path to = folder_.path() / name;
    std::filesystem::copy(legacy(name), to, std::filesystem::copy_options::recursive);
    return to;
  }
  static std::string why(const Path& path) {
    const TorchFolder folder(path);
    EXPECT_EQ(folder.tensors().size(), num_weights(folder));  // all of the state or nothing
    EXPECT_GT(num_weights(folder), 0u);
    return folder.why_no_optimizer();
  }

  TempFolder folder_;
};

// One rank's file by hand, with arguments that it does not have.
class OneRank : public ::testing::Test {
 protected:
  OneRank()
      : file_(legacy("gpt2_fp16") / "mp_rank_00/model_optim_rng.pt"),
        archive_(file_.bytes(), "model_optim_rng.pt"),
        chunks_(1) {
    const PickleValue& model = *archive_.root().find("model");
    chunks_[0].tensors = archive_.tensors(model);
    for (size_t i = 0; i < model.items.size(); i += 2) {
      const std::string name(model.items[i]->text);
      if (chunks_[0].tensors.contains(name)) chunks_[0].parameters.push_back(name);
    }
  }
  std::string error(const char* args) {
    const auto json = parse_json(args);
    return error_of([&] {
      torch_optimizer_states(
          {.file = archive_, .distributed = nullptr, .chunks = chunks_, .args = json});
    });
  }

  MappedFile file_;
  TorchArchive archive_;
  std::vector<TorchChunk> chunks_;
};

}  // namespace phx
