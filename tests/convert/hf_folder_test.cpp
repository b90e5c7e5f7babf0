#include "phalanx/convert/hf_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HfFolder, AShardThatIsNotThereOrHoldsOtherTensorsIsNamed) {
  const TempFolder folder;
  std::filesystem::copy(hf_fixture("llama3"), folder / "a");
  const Path index = folder / "a/model.safetensors.index.json";
  nlohmann::json json = read_json_object(index);
  const std::string last = json["weight_map"]["model.norm.weight"];
  const std::string text = read_file(index);

  json["weight_map"]["model.extra.weight"] = last;
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              AllOf(HasSubstr(last), HasSubstr("has no tensor model.extra.weight")));
  json["weight_map"].erase("model.extra.weight");
  json["weight_map"].erase("model.norm.weight");
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              HasSubstr("holds model.norm.weight, which"));
  json["weight_map"]["model.norm.weight"] = "../outside.safetensors";
  write_file(index, json.dump());
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }), HasSubstr("no name of a file"));
  write_file(index, text);
  std::filesystem::remove(folder / "a" / last);
  EXPECT_THAT(error_of([&] { HfFolder f(folder / "a"); }),
              AllOf(HasSubstr(last), HasSubstr("is the download complete?")));
}

TEST(HfFolder, AFolderIsOneByItsConfig) {
  const TempFolder folder;
  EXPECT_FALSE(is_hf_folder(folder.path()));
  write_file(folder / "config.json", "{}");
  EXPECT_TRUE(is_hf_folder(folder.path()));
  EXPECT_EQ(
      error_of([&] { HfFolder f(folder.path()); }),
      folder.path().string() + " holds neither model.safetensors nor model.safetensors.index.json");
}

TEST(HfFolder, AFileThatIsNoJsonObjectIsNamed) {
  const TempFolder folder;
  write_file(folder / "a.json", "{\"x\": ");
  EXPECT_THAT(error_of([&] { read_json_object(folder / "a.json"); }),
              HasSubstr((folder / "a.json").string() + " is no JSON: "));
  write_file(folder / "a.json", "[1]");
  EXPECT_EQ(error_of([&] { read_json_object(folder / "a.json"); }),
            (folder / "a.json").string() + " should hold a JSON object");
  write_file(folder / "a.json", "{\"x\": 1}");
  EXPECT_EQ(read_json_object(folder / "a.json")["x"], 1);
}

TEST(HfFolder, ATensorThatIsNotThereAndABoxBeyondOneAreNamed) {
  const HfFolder folder(hf_fixture("llama2"));
  std::vector<std::byte> out(4);
  EXPECT_EQ(error_of([&] {
              folder.read("no.such", {{0}, {1}}, out);
            }),
            hf_fixture("llama2").string() + " has no tensor no.such");
  EXPECT_THAT(error_of([&] {
                folder.read("model.norm.weight", {{16}, {1}}, out);
              }),
              HasSubstr("model.norm.weight"));
  EXPECT_THAT(folder.description(), HasSubstr(" tensors in 1 file)"));
}

TEST(HfFolder, PyTorchsFilesAreReadWhereThereAreNoOthers) {
  EXPECT_THAT(open_hf_tensors(hf_fixture("llama_bin"))->description(), HasSubstr(".bin file"));
  EXPECT_THAT(open_hf_tensors(hf_fixture("llama2"))->description(), HasSubstr("Hugging Face"));
}

TEST(HfFolder, CompanionsAreKeptByNameAndWeightsAreNot) {
  const TempFolder hf, native;
  for (const char* name :
       {"config.json", "tokenizer.json", "merges.txt", "model.safetensors", "notes.txt"})
    write_file(hf / name, std::string("of ") + name);
  keep_companions(hf.path(), native.path());
  const Path kept = kept_companions(native.path());
  EXPECT_EQ(read_file(kept / "tokenizer.json"), "of tokenizer.json");
  EXPECT_EQ(read_file(kept / "config.json"), "of config.json");
  EXPECT_TRUE(std::filesystem::exists(kept / "merges.txt"));
  EXPECT_FALSE(std::filesystem::exists(kept / "model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(kept / "notes.txt"));
}

}  // namespace
}  // namespace phx
