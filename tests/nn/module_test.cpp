#include "phalanx/nn/module.h"

#include <gtest/gtest.h>

#include <memory>

namespace phx {
namespace {

using Names = std::vector<std::string>;

class Leaf : public Module {
 public:
  Leaf() {
    add_parameter("weight", weight);
    add_parameter("bias", bias);
  }
  Parameter weight{whole({2, 2}, Init::constant(0))}, bias{whole({2}, Init::constant(0))};
};

// A parameter of its own, a child with a name, and one whose parameters stand among its own.
class Tree : public Module {
 public:
  explicit Tree(bool nested = true) {
    add_child("first", first);
    add_child("", second);
    add_parameter("own", own);
    if (nested) add_child("inner", *(inner = std::make_unique<Tree>(false)));
  }
  Leaf first, second;
  Parameter own{whole({1}, Init::constant(0))};
  std::unique_ptr<Tree> inner;
};

Names names_of(Module& module, const std::string& prefix = "") {
  Names names;
  module.for_each_parameter([&](const std::string& name, Parameter&) { names.push_back(name); },
                            prefix);
  return names;
}

TEST(Module, ParametersComeDepthFirstWithThePathAsName) {
  Tree tree;
  EXPECT_EQ(names_of(tree),
            (Names{"own", "first.weight", "first.bias", "weight", "bias", "inner.own",
                   "inner.first.weight", "inner.first.bias", "inner.weight", "inner.bias"}));
  Leaf leaf;
  EXPECT_EQ(names_of(leaf, "decoder."), (Names{"decoder.weight", "decoder.bias"}));
}

TEST(Module, EveryParameterIsToldItsFullName) {
  Tree tree;
  tree.name_parameters();
  EXPECT_EQ(tree.inner->first.bias.name(), "inner.first.bias");
  EXPECT_EQ(tree.second.weight.name(), "weight");
  EXPECT_EQ(tree.own.name(), "own");
}

}  // namespace
}  // namespace phx
