#include "phalanx/checkpoint/torch/pickle_writer.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

using namespace std::string_literals;

template <class Contents>
std::string bytes_of(Contents&& contents) {
  PickleWriter writer;
  contents(writer);
  const std::string all = writer.finish();
  EXPECT_EQ(all.substr(0, 2), "\x80\x02");
  EXPECT_EQ(all.back(), '.');
  return all.substr(2, all.size() - 3);
}

// By hand, from the description of the opcodes in Python's pickletools.
TEST(PickleWriter, NumbersTakeTheShortestFormThatHoldsThem) {
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.integer(0); }), "K\0"s);
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.integer(255); }), "K\xff");
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.integer(256); }), "J\0\1\0\0"s);
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.integer(-1); }), "J\xff\xff\xff\xff");
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.integer(int64_t{1} << 31); }),
            "\x8a\x08\0\0\0\x80\0\0\0\0"s);
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.real(1.0); }), "G\x3f\xf0\0\0\0\0\0\0"s);
}

TEST(PickleWriter, ContainersTakeWhatLiesAboveTheirMark) {
  EXPECT_EQ(bytes_of([](PickleWriter& w) {
              w.dict([&] { w.text("a"), w.tuple([&] { w.none(), w.boolean(true); }); });
            }),
            "}(X\1\0\0\0a(N\x88tu"s);
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.list([&] { w.boolean(false); }); }), "](\x89"s + "e");
}

TEST(PickleWriter, ANameIsWrittenOnceAndThenReferredTo) {
  EXPECT_EQ(
      bytes_of([](PickleWriter& w) {
        w.tuple([&] { w.global("torch", "Size"), w.global("a", "b"), w.global("torch", "Size"); });
      }),
      "(ctorch\nSize\nr\0\0\0\0ca\nb\nr\1\0\0\0j\0\0\0\0t"s);
}

TEST(PickleWriter, ObjectsAreMadeAndThenGivenTheirState) {
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.object("m", "C", [&] { w.none(); }); }),
            "cm\nC\nr\0\0\0\0)\x81Nb"s);
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.persistent([&] { w.none(); }); }), "(NtQ");
  EXPECT_EQ(bytes_of([](PickleWriter& w) { w.size(std::vector<int64_t>{2}); }),
            "ctorch\nSize\nr\0\0\0\0((K\2ttR"s);
}

}  // namespace
}  // namespace phx
