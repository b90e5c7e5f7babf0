#include "phalanx/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file with this header and these bytes of data, whatever they are.
void write_raw(const Path& path, const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  write_file(path, std::string(reinterpret_cast<const char*>(&length), 8) + header + data);
}

std::string error_of_file(const std::string& header, const std::string& data) {
  const TempFolder folder;
  const Path path = folder / "x.safetensors";
  write_raw(path, header, data);
  const std::string error = error_of([&] { SafetensorsFile file(path); });
  EXPECT_THAT(error, HasSubstr(path.native())) << "the file is not named";
  return error;
}

void write_example(const Path& path) {
  SafetensorsWriter writer(path,
                           {{"w", "F32", {1, 2}}, {"none", "BF16", {0, 3}}, {"scalar", "U8", {}}},
                           {{"format", "pt"}});
  writer.append("w", as_bytes("abc"));
  writer.append("w", as_bytes("defgh"));
  writer.append("none", {});
  writer.append("scalar", as_bytes("!"));
  writer.commit();
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TempFolder folder;
  write_example(folder / "x");
  const SafetensorsFile file(folder / "x");
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "w");
  EXPECT_EQ(file.at("w").dtype, "F32");
  EXPECT_THAT(file.at("w").shape, ElementsAre(1, 2));
  EXPECT_EQ(text_of(file.at("w").bytes), "abcdefgh");
  EXPECT_TRUE(file.at("none").bytes.empty());
  EXPECT_TRUE(file.at("scalar").shape.empty());
  EXPECT_EQ(text_of(file.at("scalar").bytes), "!");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.find("x"), nullptr);
  EXPECT_THAT(error_of([&] { file.at("x"); }), HasSubstr("has no tensor \"x\" among its 3"));
}

TEST(Safetensors, TheBytesAreAsTheFormatSays) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "x", {{"a", "I16", {1}}});
  writer.append("a", as_bytes("hi"));
  writer.commit();
  const std::string header = R"({"a":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}})";
  const std::string padded = header + std::string(56 - header.size(), ' ');
  EXPECT_EQ(read_file(folder / "x"), std::string("\x38\0\0\0\0\0\0\0", 8) + padded + "hi");
}

TEST(Safetensors, AFileOfNothingIsAFile) {
  const TempFolder folder;
  SafetensorsWriter(folder / "x", {}).commit();
  EXPECT_TRUE(SafetensorsFile(folder / "x").tensors().empty());
}

TEST(Safetensors, TensorsAreSortedByTheirBytes) {
  const TempFolder folder;
  write_raw(folder / "x",
            R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
            R"("b":{"dtype":"U16","shape":[1],"data_offsets":[0,2]}}  )",
            "bba");
  const SafetensorsFile file(folder / "x");
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(text_of(file.at("a").bytes), "a");
}

TEST(Safetensors, EveryCutIsNoticed) {
  const TempFolder folder;
  write_example(folder / "x");
  const std::string whole = read_file(folder / "x");
  for (size_t length = 0; length < whole.size(); ++length) {
    AtomicFile file(folder / "cut");
    file.write(std::string_view(whole).substr(0, length));
    file.commit();
    EXPECT_THROW(SafetensorsFile(folder / "cut"), Error) << length << " of " << whole.size();
  }
  write_file(folder / "long", whole + "x");
  EXPECT_THAT(error_of([&] { SafetensorsFile file(folder / "long"); }),
              HasSubstr("1 bytes at the end belong to no tensor"));
}

TEST(Safetensors, NoFlippedBitInTheHeaderDoesHarm) {
  const TempFolder folder;
  write_example(folder / "x");
  const std::string whole = read_file(folder / "x");
  int refused = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string broken = whole;
    broken[random() % (whole.size() - 9)] ^= 1 << random() % 8;
    {
      AtomicFile file(folder / "b");
      file.write(broken);
      file.commit();
    }
    try {
      // Where only a name changed the file is still one; its bytes must then be in the file.
      const SafetensorsFile file(folder / "b");
      for (const auto& tensor : file.tensors()) text_of(tensor.bytes);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Safetensors, AHugeHeaderIsRefusedBeforeItIsRead) {
  const TempFolder folder;
  write_file(folder / "x", std::string(8, '\xff') + "{}");
  EXPECT_THAT(error_of([&] { SafetensorsFile file(folder / "x"); }),
              HasSubstr("the header length is 18446744073709551615, above the 100000000"));
}

TEST(Safetensors, BrokenHeadersAreNamed) {
  EXPECT_THAT(error_of_file("[1]", ""), HasSubstr("should start with '{'"));
  EXPECT_THAT(error_of_file("{\"a\":", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_file("{\"a\":1}", ""), HasSubstr("tensor \"a\" should be described"));
  EXPECT_THAT(error_of_file("{\"a\":{}}", ""), HasSubstr("tensor \"a\" has no \"dtype\""));
  EXPECT_THAT(error_of_file(R"({"a":{"b":{"c":{"d":{"e":{}}}}}})", ""), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of_file("{" + std::string(100000, '['), ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of_file("{\"a\":" + std::string(100000, '['), ""), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of_file(R"({"__metadata__":{"a":1}})", ""),
              HasSubstr("metadata \"a\" should be a string"));
  EXPECT_THAT(error_of_file(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                            R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})",
                            "x"),
              HasSubstr("has \"a\" twice"));
}

TEST(Safetensors, BrokenTensorsAreNamed) {
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return error_of_file("{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
                             ",\"data_offsets\":" + offsets + "}}",
                         "12345678");
  };
  EXPECT_THAT(tensor("F7", "[8]", "[0,8]"),
              HasSubstr("tensor \"t\" has the dtype F7; known are F64"));
  EXPECT_THAT(tensor("U8", "[9]", "[0,9]"), HasSubstr("ends at byte 9, but the file holds 8"));
  EXPECT_THAT(tensor("U8", "[7]", "[0,8]"),
              HasSubstr("[7], which is 7 bytes, but its offsets span 8"));
  EXPECT_THAT(tensor("U8", "[7]", "[0,7]"), HasSubstr("1 bytes at the end belong to no tensor"));
  EXPECT_THAT(tensor("U8", "[7]", "[1,8]"), HasSubstr("1 bytes before tensor \"t\" belong to no"));
  EXPECT_THAT(tensor("U8", "[8]", "[8,0]"), HasSubstr("ends at 0, before it begins at 8"));
  EXPECT_THAT(tensor("U8", "[-8]", "[0,8]"), HasSubstr("the negative number -8"));
  EXPECT_THAT(tensor("U8", "[8.0]", "[0,8]"), HasSubstr("whole numbers, but has 8.0"));
  EXPECT_THAT(tensor("U8", "[8]", "[0]"), HasSubstr("a list of two numbers"));
  EXPECT_THAT(tensor("U8", "[8]", "[0,18446744073709551615]"), HasSubstr("too large"));
  // 2^32 * 2^32 * 8 bytes would wrap to 0.
  EXPECT_THAT(tensor("F64", "[4294967296,4294967296]", "[0,0]"), HasSubstr("more than 2^63 bytes"));
}

TEST(Safetensors, OverlapsAreRefused) {
  EXPECT_THAT(error_of_file(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                            R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                            "123"),
              HasSubstr("tensor \"b\" overlaps \"a\""));
}

TEST(SafetensorsWriter, KeepsTheOrderAndTheSizes) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "x", {{"a", "U8", {2}}, {"b", "U8", {1}}});
  EXPECT_THAT(error_of([&] { writer.append("b", as_bytes("1")); }),
              HasSubstr("it is the turn of \"a\""));
  EXPECT_THAT(error_of([&] { writer.append("a", as_bytes("123")); }),
              HasSubstr("has 2 bytes; 3 came where 2 were missing"));
  writer.append("a", as_bytes("1"));
  EXPECT_THAT(error_of([&] { writer.commit(); }),
              HasSubstr("tensor \"a\" has 1 of 2 bytes: the file is not complete"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  writer.append("a", as_bytes("2"));
  writer.append("b", as_bytes("3"));
  EXPECT_THAT(error_of([&] { writer.append("b", as_bytes("4")); }), HasSubstr("after all tensors"));
  writer.commit();
  EXPECT_EQ(text_of(SafetensorsFile(folder / "x").at("a").bytes), "12");
}

TEST(SafetensorsWriter, RefusesWhatNobodyCouldRead) {
  const TempFolder folder;
  const auto write = [&](std::vector<SafetensorsEntry> entries) {
    return error_of([&] { SafetensorsWriter writer(folder / "x", std::move(entries)); });
  };
  EXPECT_THAT(write({{"a", "U8", {1}}, {"a", "U8", {1}}}), HasSubstr("\"a\" is given twice"));
  EXPECT_THAT(write({{"a", "float", {1}}}), HasSubstr("has the dtype float"));
  EXPECT_THAT(write({{"a", "U8", {-1}}}), HasSubstr("negative dimension: [-1]"));
  EXPECT_THAT(write({{"__metadata__", "U8", {1}}}), HasSubstr("keeps for itself"));
  EXPECT_THAT(write({{"\xff", "U8", {1}}}), HasSubstr("cannot be written as JSON"));
}

}  // namespace
}  // namespace phx
