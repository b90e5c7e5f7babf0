#include "phalanx/checkpoint/torch/pickle_names.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(PickleNames, OnlyDataIsOnTheList) {
  EXPECT_EQ(pickle_name("collections", "OrderedDict"), PickleName::dictionary);
  EXPECT_EQ(pickle_name("torch._utils", "_rebuild_tensor_v2"), PickleName::callable);
  EXPECT_EQ(pickle_name("torch", "float32"), PickleName::value);
  EXPECT_EQ(pickle_name("builtins", "getattr"), PickleName::member_of);
  EXPECT_EQ(pickle_name("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
            PickleName::enumeration);
  for (const auto& [module, name] : {std::pair("builtins", "eval"), std::pair("os", "system"),
                                     std::pair("torch", "load"), std::pair("", "")})
    EXPECT_EQ(pickle_name(module, name), PickleName::refused) << module << "." << name;
}

// The name is looked up whole: the same text cut elsewhere is the same name in the list, but not
// one of Megatron's.
TEST(PickleNames, OfMegatronOnlyClassesAreTaken) {
  EXPECT_EQ(pickle_name("megatron.core.transformer.enums", "AttnBackend"), PickleName::enumeration);
  EXPECT_EQ(pickle_name("transformer_engine.common.recipe", "Format"), PickleName::enumeration);
  EXPECT_EQ(pickle_name("megatron.training.training", "pretrain"), PickleName::refused);
  EXPECT_EQ(pickle_name("megatron.core.enums", "Class.method"), PickleName::refused);
  EXPECT_EQ(pickle_name("megatron.core.enums", ""), PickleName::refused);
  EXPECT_EQ(pickle_name("megatronx.core", "Class"), PickleName::refused);
  EXPECT_EQ(pickle_name("megatron", "Class"), PickleName::refused);
}

// Its .metadata holds all_local_plans: what each of its ranks was to write.
TEST(PickleNames, ThePlansOfMegatronsRanksAreTaken) {
  const std::string planner = "torch.distributed.checkpoint.planner";
  for (const char* name : {"SavePlan", "WriteItem", "TensorWriteData", "BytesIOWriteData"})
    EXPECT_EQ(pickle_name(planner, name), PickleName::callable) << name;
  EXPECT_EQ(pickle_name(planner, "WriteItemType"), PickleName::enumeration);
  EXPECT_EQ(pickle_name(planner, "SavePlanner"), PickleName::refused);
}

TEST(PickleNames, NeighboursInTheAlphabetAreNotTaken) {
  EXPECT_EQ(pickle_name("torch", "float3"), PickleName::refused);
  EXPECT_EQ(pickle_name("torch", "float322"), PickleName::refused);
  EXPECT_EQ(pickle_name("__builtin__", "bool"), PickleName::callable);       // the first
  EXPECT_EQ(pickle_name("types", "SimpleNamespace"), PickleName::callable);  // the last
}

}  // namespace
}  // namespace phx
