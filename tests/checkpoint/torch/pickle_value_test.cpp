#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/torch/pickle.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"

namespace phx {
namespace {

using namespace std::string_literals;

const std::string kStart = "\x80\x02"s;  // protocol 2

std::string described(const std::string& body) {
  const std::string bytes = kStart + body + ".";
  return describe(PickleTree(as_bytes(bytes), "x.pt").root());
}

TEST(PickleValue, EveryKindIsDescribed) {
  EXPECT_EQ(described("N"), "None");
  EXPECT_EQ(described("\x88"), "True");
  EXPECT_EQ(described("K\7"), "the number 7");
  EXPECT_EQ(described("\x8a\x09\0\0\0\0\0\0\0\0\1"s), "a number beyond 64 bits");
  EXPECT_EQ(described("U\3a\1b"), "the text 'a?b'");
  EXPECT_EQ(described("C\2ab"), "2 bytes");
  EXPECT_EQ(described("NN\x86"), "a tuple of 2");
  EXPECT_EQ(described("](NNNe"), "a list of 3");
  EXPECT_EQ(described("}(NNNNu"), "a dict of 2");
  EXPECT_EQ(described("ctorch\nfloat32\n"), "the name torch.float32");
  EXPECT_EQ(described("ctorch\nSize\n)R"), "an object of torch.Size");
  EXPECT_EQ(described("NQ"), "a storage");
}

TEST(PickleValue, TheLastOfTwoEqualKeysCounts) {
  PickleWriter writer;
  writer.dict([&] {
    writer.text("a"), writer.integer(1);
    writer.integer(5), writer.integer(2);  // no text: never found by name
    writer.text("a"), writer.integer(3);
  });
  const std::string bytes = writer.finish();
  const PickleTree tree(as_bytes(bytes), "x.pt");
  EXPECT_EQ(tree.root().find("a")->as_integer(), 3);
  EXPECT_EQ(tree.root().find("5"), nullptr);
}

TEST(PickleValue, AttributesAreFoundInStateAndInStateWithSlots) {
  const std::string dict = "}U\1aK\5s";
  for (const std::string& state : {dict, "(" + dict + "}t"}) {
    const std::string bytes = kStart + "cargparse\nNamespace\n)\x81" + state + "b.";
    const PickleTree tree(as_bytes(bytes), "x.pt");
    ASSERT_NE(tree.root().find("a"), nullptr) << state;
    EXPECT_EQ(tree.root().find("a")->as_integer(), 5);
    EXPECT_EQ(tree.root().find("b"), nullptr);
  }
  const std::string list = kStart + "].";
  EXPECT_EQ(PickleTree(as_bytes(list), "x.pt").root().find("a"), nullptr);
}

TEST(PickleValue, OnlyIntegersThatFitAreIntegers) {
  const auto integer = [](const std::string& body) {
    const std::string bytes = kStart + body + ".";
    return PickleTree(as_bytes(bytes), "x.pt").root().as_integer();
  };
  EXPECT_EQ(integer("J\xff\xff\xff\xff"), -1);
  EXPECT_EQ(integer("\x88"), std::nullopt);  // True
  EXPECT_EQ(integer("\x8a\x09\0\0\0\0\0\0\0\0\1"s), std::nullopt);
  EXPECT_EQ(integer("U\0017"), std::nullopt);
}

}  // namespace
}  // namespace phx
