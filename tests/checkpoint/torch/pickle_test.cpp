#include "phalanx/checkpoint/torch/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/torch/pickle_json.h"
#include "phalanx/checkpoint/torch/pickle_names.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using Kind = PickleValue::Kind;
using namespace std::string_literals;

const std::string kStart = "\x80\x02"s;  // protocol 2

PickleTree read(const std::string& bytes) { return PickleTree(as_bytes(bytes), "x.pt"); }

std::string error_of_pickle(const std::string& body) {
  const std::string bytes = kStart + body;
  const std::string error = error_of([&] { read(bytes); });
  EXPECT_THAT(error, HasSubstr("x.pt")) << "the file is not named";
  return error;
}

// A little-endian 32-bit number.
std::string u32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
std::string text(const std::string& value) { return "X" + u32(uint32_t(value.size())) + value; }

TEST(Pickle, ReadsWhatTheWriterWrites) {
  PickleWriter writer;
  writer.dict([&] {
    writer.text("numbers");
    writer.list([&] {
      for (const int64_t number :
           {int64_t{0}, int64_t{255}, int64_t{256}, int64_t{-1}, int64_t{1} << 40, INT64_MIN})
        writer.integer(number);
    });
    writer.text("real");
    writer.real(-1.5);
    writer.text("yes");
    writer.boolean(true);
    writer.text("nothing");
    writer.none();
    writer.text("size");
    writer.size(std::vector<int64_t>{2, 3});
    writer.text("again");
    writer.size(std::vector<int64_t>{4});
  });
  const std::string bytes = writer.finish();
  const PickleTree tree = read(bytes);
  const PickleValue& root = tree.root();
  ASSERT_TRUE(root.is(Kind::dict));
  std::vector<int64_t> numbers;
  for (const PickleValue* number : root.find("numbers")->items) numbers.push_back(number->integer);
  EXPECT_EQ(numbers, (std::vector<int64_t>{0, 255, 256, -1, int64_t{1} << 40, INT64_MIN}));
  EXPECT_EQ(root.find("real")->real, -1.5);
  EXPECT_EQ(root.find("yes")->integer, 1);
  EXPECT_TRUE(root.find("nothing")->is(Kind::none));
  EXPECT_EQ(dims_of(root.find("size")), (Dims{2, 3}));
  EXPECT_EQ(dims_of(root.find("again")), Dims{4});
  EXPECT_EQ(root.find("absent"), nullptr);
  EXPECT_EQ(tree.consumed(), int64_t(bytes.size()));
  EXPECT_EQ(pickle_json(root),
            R"({"again":[4],"nothing":null,"numbers":[0,255,256,-1,1099511627776,)"
            R"(-9223372036854775808],"real":-1.5,"size":[2,3],"yes":true})");
}

TEST(Pickle, NamesOutsideOfTheListAreRefusedByName) {
  const auto refused = [](const std::string& module, const std::string& name) {
    const std::string by_line =
        error_of_pickle("c" + module + "\n" + name + "\n" + text("ls") + "\x85R.");
    EXPECT_THAT(by_line, HasSubstr(module + "." + name + " is not on the list of names"));
    const std::string by_stack = error_of_pickle(text(module) + text(name) + "\x93.");
    EXPECT_THAT(by_stack, HasSubstr(module + "." + name + " is not on the list of names"));
  };
  refused("os", "system");
  refused("posix", "system");
  refused("nt", "system");
  refused("subprocess", "Popen");
  refused("builtins", "eval");
  refused("builtins", "exec");
  refused("builtins", "__import__");
  refused("__builtin__", "eval");
  refused("torch", "load");
  refused("torch.hub", "load");
  refused("torch.storage", "_load_from_bytes");
  refused("operator", "attrgetter");
  refused("functools", "partial");
  refused("megatron.training.training", "pretrain");    // a function
  refused("megatron.core.optimizer", "Adam.__init__");  // a path into a class
  refused("collections", "OrderedDict.__init__.__globals__");
}

TEST(Pickle, ObjectsOfMegatronAreNamesOnly) {
  const std::string bytes = kStart + "cmegatron.core.transformer.enums\nAttnBackend\nK\x05\x85R.";
  const PickleTree tree = read(bytes);
  EXPECT_TRUE(tree.root().is(Kind::object));
  EXPECT_EQ(tree.root().callee->text, "megatron.core.transformer.enums.AttnBackend");
  EXPECT_EQ(pickle_json(tree.root()), "5");
}

TEST(Pickle, GetattrIsTakenForMembersOfEnumerationsAlone) {
  const std::string get = "cbuiltins\ngetattr\n";
  const std::string encoding = "ctorch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING\n";
  const std::string good = kStart + get + encoding + text("TORCH_CONTIGUOUS_FORMAT") + "\x86R.";
  EXPECT_TRUE(read(good).root().is(Kind::object));
  const auto refused = [&](const std::string& arguments) {
    EXPECT_THAT(error_of_pickle(get + arguments + "R."),
                HasSubstr("builtins.getattr is taken for members of known enumerations alone"));
  };
  refused(encoding + text("__class__") + "\x86");
  refused("ccollections\nOrderedDict\n" + text("fromkeys") + "\x86");
  // The result of one getattr as the object of the next.
  refused(get + encoding + text("x") + "\x86R" + text("y") + "\x86");
  refused(")");
}

TEST(Pickle, OnlyNamesAreCalled) {
  EXPECT_THAT(error_of_pickle("ccollections\nOrderedDict\n)R)R."),
              HasSubstr("a dict of 0 is called; only names of the list are"));
  EXPECT_THAT(error_of_pickle(text("os.system") + ")R."),
              HasSubstr("the text 'os.system' is called"));
  EXPECT_THAT(error_of_pickle("ctorch\nfloat32\n)R."),
              HasSubstr("torch.float32 is called, but it is a constant"));
  EXPECT_THAT(error_of_pickle("ctorch\nSize\nK\x01R."),
              HasSubstr("torch.Size is called with the number 1 instead of a tuple"));
  EXPECT_THAT(error_of_pickle("ctorch\nSize\n)}" + text("a") + "K\x01s\x92."),
              HasSubstr("is made with named arguments"));
}

TEST(Pickle, StateIsGivenToObjectsAlone) {
  EXPECT_THAT(error_of_pickle(")}b."), HasSubstr("state is given to a tuple of 0"));
  EXPECT_THAT(error_of_pickle("ctorch\nSize\n}b."),
              HasSubstr("state is given to the name torch.Size"));
  EXPECT_THAT(error_of_pickle("}}b."), HasSubstr("state is given to a dict of 0"));
}

TEST(Pickle, NothingIsTakenFromAnEmptyStack) {
  const std::string ops[] = {".",    "0",    "2",        "a",      "s",    "\x85",    "\x86",
                             "\x87", "R",    "b",        "\x81",   "\x92", "\x93",    "Q",
                             "q\1",  "K\1a", "K\1s",     "K\1b",   "K\1R", "K\1\x93", "\x94",
                             "(a.",  "(s",   "K\1(\x85", "K\1(0a", "(."};
  for (const std::string& op : ops)
    EXPECT_THAT(error_of_pickle(op + "."), HasSubstr("taken from an empty stack")) << op;
  for (const std::string op : {"t", "l", "d", "e", "u", "1", "\x90", "\x91"})
    EXPECT_THAT(error_of_pickle("]" + op + "."), HasSubstr("a mark is taken where there is none"));
  EXPECT_THAT(error_of_pickle("NN."), HasSubstr("values are left over at the end"));
}

TEST(Pickle, ItemsGoIntoContainersAlone) {
  EXPECT_THAT(error_of_pickle("NK\1a."), HasSubstr("elements are appended to None"));
  EXPECT_THAT(error_of_pickle("]K\1K\2s."), HasSubstr("keys are set in a list of 0"));
  EXPECT_THAT(error_of_pickle("}(K\1u."), HasSubstr("a key is set without a value"));
  EXPECT_THAT(error_of_pickle("(K\1d."), HasSubstr("a key is set without a value"));
  EXPECT_THAT(error_of_pickle("](K\1\x90."), HasSubstr("elements are added to a list"));
}

TEST(Pickle, MemosAreNoLargerThanTheStreamThatFillsThem) {
  EXPECT_THAT(error_of_pickle("Nr" + u32(0xffffffff) + "."),
              HasSubstr("entry 4294967295 of the memo is set at byte 8"));
  EXPECT_THAT(error_of_pickle("h\7."), HasSubstr("entry 7 of the memo is used, but was never set"));
  EXPECT_THAT(error_of_pickle("j" + u32(0xffffffff) + "."), HasSubstr("was never set"));
}

TEST(Pickle, LengthsBeyondTheStreamAreRefused) {
  EXPECT_THAT(error_of_pickle("X" + u32(0xffffffff) + "abc"),
              HasSubstr("4294967295 bytes are needed, 3 are left"));
  EXPECT_THAT(error_of_pickle("\x8e"s + std::string(8, '\xff')),
              HasSubstr("the pickle is cut off"));
  EXPECT_THAT(error_of_pickle("cos"), HasSubstr("cut off inside a name"));
  EXPECT_THAT(error_of_pickle("N"), HasSubstr("1 bytes are needed, 0 are left"));
  EXPECT_THAT(error_of([] { read("abc"); }), HasSubstr("begins with the byte 0x80"));
  EXPECT_THAT(error_of([] { read("\x80\x06N."); }), HasSubstr("protocol 6; protocols 2 to 5"));
}

TEST(Pickle, OpcodesThatNeedAnInterpreterAreRefused) {
  EXPECT_THAT(error_of_pickle("(ios\nsystem\n."), HasSubstr("INST, an old way to make objects"));
  EXPECT_THAT(error_of_pickle("(cos"), HasSubstr("cut off"));
  EXPECT_THAT(error_of_pickle("\x82\1."), HasSubstr("EXT"));
  EXPECT_THAT(error_of_pickle("\x97."), HasSubstr("data outside of the file"));
  EXPECT_THAT(error_of_pickle("I1\n."), HasSubstr("protocol 0"));
  EXPECT_THAT(error_of_pickle("\xff."), HasSubstr("the byte 0xff, which is no opcode"));
}

TEST(Pickle, LimitsHold) {
  EXPECT_THAT(error_of_pickle(std::string(2000, '(')),
              HasSubstr("more than 1000 containers inside each other"));
  const std::string lists = kStart + std::string(1000, ']');
  const PickleLimits few{.max_values = 100};
  EXPECT_THAT(error_of([&] { PickleTree(as_bytes(lists), "x.pt", few); }),
              HasSubstr("more than 100 values"));
  // A long list, put again and again into dicts by five bytes each.
  std::string pairs = "](";
  for (int i = 0; i < 100; ++i) pairs += "NN\x86";
  pairs += "e\x85q\1" + std::string(
                            "0ccollections\nOrderedDict\nq\2"
                            "0]");
  for (int i = 0; i < 1000; ++i) pairs += "h\2h\1Ra";
  EXPECT_THAT(error_of_pickle(pairs + "."), HasSubstr("is made of the same list again and again"));
}

TEST(Pickle, DeepAndCircularValuesAreReadWithoutRecursion) {
  std::string deep = kStart;
  for (int i = 0; i < 200000; ++i) deep += "]";
  for (int i = 1; i < 200000; ++i) deep += "a";
  deep += ".";
  EXPECT_TRUE(read(deep).root().is(Kind::list));
  EXPECT_FALSE(pickle_json(read(deep).root()).empty());
  const std::string circle = kStart + "]q\1h\1a.";
  const PickleTree tree = read(circle);
  EXPECT_EQ(tree.root().items[0], &tree.root());
  EXPECT_FALSE(pickle_json(tree.root()).empty());
}

TEST(Pickle, SharedDictsAreNotMultiplied) {
  // Thirty dicts, each with the one before under two keys: a billion names.
  std::string bomb = kStart + "}q\0"s;
  for (int i = 1; i <= 30; ++i) {
    const std::string before = "h"s + char(i - 1);
    bomb += "}(" + text("a") + before + text("b") + before + "uq"s + char(i);
  }
  // A mark below them and POP_MARK above: only the last one stays.
  bomb = kStart + "(" + bomb.substr(kStart.size()) + "1h\x1e.";
  const TorchArchive archive(as_bytes(bomb), "x.pt");
  EXPECT_THAT(error_of([&] { archive.tensors(archive.root()); }),
              HasSubstr("the same dicts are inside each other again and again"));
  const std::string circle = kStart + "}q\1" + text("a") + "h\1s.";
  const TorchArchive around(as_bytes(circle), "x.pt");
  EXPECT_THAT(error_of([&] { around.tensors(around.root()); }),
              AnyOf(HasSubstr("dicts inside each other at a.a.a"), HasSubstr("again and again")));
}

}  // namespace
}  // namespace phx
