#include "phalanx/checkpoint/torch/pickle_json.h"

#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_object.h"

namespace phx {
namespace {

template <class Contents>
std::string json_of(Contents&& contents) {
  PickleWriter writer;
  contents(writer);
  const std::string bytes = writer.finish();
  return pickle_json(PickleTree(as_bytes(bytes), "x.pt").root());
}

TEST(PickleJson, AnObjectIsItsAttributes) {
  EXPECT_EQ(json_of([](PickleWriter& w) {
              w.object("argparse", "Namespace", [&] {
                w.dict([&] {
                  w.text("lr"), w.real(0.5);
                  w.text("dtype"), w.global("torch", "float32");
                });
              });
            }),
            R"({"dtype":"torch.float32","lr":0.5})");
}

TEST(PickleJson, KeysAreTextsAndNumbersAndOthersAreLeftOut) {
  EXPECT_EQ(json_of([](PickleWriter& w) {
              w.dict([&] {
                w.text("a"), w.integer(1);
                w.integer(7), w.none();
                w.none(), w.integer(2);
                w.boolean(true), w.integer(3);
              });
            }),
            R"({"7":null,"a":1})");
}

TEST(PickleJson, WhatIsNestedTooDeepIsNull) {
  PickleWriter writer;
  const auto nested = [&](const auto& self, int levels) -> void {
    if (levels == 0) return writer.integer(5);
    writer.list([&] { self(self, levels - 1); });
  };
  writer.list([&] {
    nested(nested, 15);
    nested(nested, 16);
  });
  const std::string bytes = writer.finish();
  const nlohmann::json json = parse_json(pickle_json(PickleTree(as_bytes(bytes), "x.pt").root()));
  const auto innermost = [](const nlohmann::json& list) {
    const nlohmann::json* at = &list;
    while (at->is_array()) at = &at->at(0);
    return *at;
  };
  EXPECT_EQ(innermost(json[0]), 5);
  EXPECT_EQ(innermost(json[1]), nullptr);
}

// A text of a megabyte that is in a list a thousand times would be a gigabyte.
TEST(PickleJson, SharedValuesDoNotMultiply) {
  const std::string large(1 << 20, 'x');
  PickleWriter writer;
  writer.text(large);
  std::string bytes = writer.finish();
  bytes.pop_back();  // STOP
  bytes += std::string("q\1](", 4);
  for (int i = 0; i < 1000; ++i) bytes += std::string("h\1", 2);
  bytes += "e\x86.";
  const std::string json = pickle_json(PickleTree(as_bytes(bytes), "x.pt").root());
  EXPECT_LT(json.size(), size_t{10} << 20);
}

TEST(PickleJson, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(json_of([](PickleWriter& w) { w.text("a\xff"); }), "\"a\xef\xbf\xbd\"");
}

TEST(PickleJson, TensorsOfOneElementAreNumbersWhereTheArchiveIsThere) {
  const std::string bytes =
      saved_object({{"scale", {{"$tensor", 1.5}}}, {"many", {{"$tensor", {1, 2}}}}});
  const TorchArchive archive(as_bytes(bytes), "x.pt");
  EXPECT_EQ(pickle_json(archive.root(), archive), R"({"many":null,"scale":1.5})");
}

}  // namespace
}  // namespace phx
