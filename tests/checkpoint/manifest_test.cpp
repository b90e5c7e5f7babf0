#include "phalanx/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

Manifest good() {
  Manifest manifest;
  manifest.iteration = 7;
  manifest.files = {{.name = "a.safetensors", .bytes = 100, .header_bytes = 20, .header_hash = 3}};
  manifest.tensors["w"] = {
      {DType::f32, {4, 5}},
      {{.file = 0, .offset = 20, .box = {{0, 0}, {1, 5}}, .hashes = {1}},
       {.file = 0, .offset = 40, .box = {{1, 0}, {3, 5}}, .hashes = {~uint64_t{0}}}}};
  manifest.info["state"] = R"({"iteration":7})";
  return manifest;
}

std::string error_after(const std::function<void(Manifest&)>& change) {
  Manifest manifest = good();
  change(manifest);
  return error_of([&] { Manifest::parse(manifest.to_text(), "m.json").check_complete("m.json"); });
}

TEST(Manifest, ReadsWhatItWrote) {
  const Manifest read = Manifest::parse(good().to_text(), "m.json");
  EXPECT_EQ(read.to_text(), good().to_text());
  read.check_complete("m.json");
  EXPECT_EQ(read.tensors.at("w").pieces[1].hashes[0], ~uint64_t{0});
}

TEST(Manifest, RefusesWhatAReaderWouldTripOver) {
  EXPECT_THAT(error_after([](Manifest& m) { m.files[0].name = "../a"; }),
              HasSubstr("is no name of a file in this folder"));
  EXPECT_THAT(error_after([](Manifest& m) { m.files[0].header_bytes = 101; }),
              HasSubstr("a header of 101 of its 100 bytes"));
  EXPECT_THAT(error_after([](Manifest& m) { m.files.push_back(m.files[0]); }),
              HasSubstr("is there twice"));
  EXPECT_THAT(error_after([](Manifest& m) { m.tensors["w"].pieces[0].file = 1; }),
              HasSubstr("file 1 of 1"));
  EXPECT_THAT(error_after([](Manifest& m) { m.tensors["w"].pieces[1].offset = 41; }),
              HasSubstr("a piece of 60 bytes at 41 lies outside of a.safetensors"));
  EXPECT_THAT(error_after([](Manifest& m) { m.tensors["w"].pieces[0].box.begin[0] = 4; }),
              HasSubstr("outside of F32 [4, 5]"));
  EXPECT_THAT(error_after([](Manifest& m) { m.tensors["w"].pieces[0].hashes.push_back(1); }),
              HasSubstr("has 2 checksums"));
  EXPECT_THAT(error_after([](Manifest& m) { m.tensors["w"].pieces.pop_back(); }),
              HasSubstr("15 elements of w F32 [4, 5] are in no piece"));
  EXPECT_THAT(error_after([](Manifest& m) {
                m.tensors["w"].pieces[1].box = {{0, 0}, {3, 5}};
              }),
              HasSubstr("hold the same elements"));
  EXPECT_THAT(error_after([](Manifest& m) {
                m.tensors["w"].info.shape = {int64_t{1} << 40, int64_t{1} << 40};
              }),
              HasSubstr("more than 2^57 elements"));
}

TEST(Manifest, ATextThatIsCutOrChangedIsNoManifest) {
  const std::string text = good().to_text();
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_THAT(error_of([&] { Manifest::parse(text.substr(0, length), "m.json"); }),
                HasSubstr("m.json: "));
  for (size_t at = 0; at < text.size(); ++at) {
    std::string bad = text;
    bad[at] = char(bad[at] ^ 4);
    EXPECT_THAT(error_of([&] { Manifest::parse(bad, "m.json"); }), HasSubstr("m.json: "));
  }
  EXPECT_THAT(error_of([&] { Manifest::parse_body(R"({"format": "phalanx-9"})", "m.json"); }),
              HasSubstr("the format is \"phalanx-9\"; this build reads phalanx-2"));
}

}  // namespace
}  // namespace phx
