#include "phalanx/comm/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "support/gradients.h"

namespace phx {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<LaunchEnvironment> read(const Variables& variables) {
  return launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchEnvironment, IsNoneWithoutALauncher) { EXPECT_FALSE(read({})); }

TEST(LaunchEnvironment, ReadsTorchrun) {
  const auto found = read({{"RANK", "5"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "node7"},
                           {"MASTER_PORT", "29500"},
                           {"SLURM_PROCID", "1"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "torchrun");
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 4);
  EXPECT_EQ(found->store_host, "node7");
  EXPECT_EQ(found->store_port, 29501) << "torchrun itself sits on MASTER_PORT";
  EXPECT_FALSE(found->under_mpirun());
  EXPECT_FALSE(found->one_machine);
  EXPECT_FALSE(found->with_rank_zero);
}

// RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT alone do not say how many machines
// there are.
TEST(LaunchEnvironment, VariablesSetByHandMeanSeveralMachinesUnlessTheAddressIsLoopback) {
  Variables variables = {{"RANK", "1"},
                         {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "1"},
                         {"MASTER_ADDR", "node"},
                         {"MASTER_PORT", "29500"},
                         {"PHX_JOB_KEY", "k"},
                         {"PHX_INTERFACE", "ib0"},
                         {"PHX_MESH_PORT", "30000"}};
  auto found = read(variables);
  EXPECT_FALSE(found->one_machine);
  EXPECT_TRUE(found->with_rank_zero);
  EXPECT_FALSE(found->numbered_in_turn);
  EXPECT_EQ(found->job_key, "k");
  EXPECT_EQ(found->interface, "ib0");
  EXPECT_EQ(found->mesh_port, 30000);
  variables["LOCAL_RANK"] = "0";
  EXPECT_FALSE(read(variables)->with_rank_zero);
  variables.erase("LOCAL_RANK");
  EXPECT_FALSE(read(variables)->with_rank_zero);
  variables["RANK"] = "0";
  EXPECT_TRUE(read(variables)->with_rank_zero) << "rank 0 is beside itself";
  for (const char* here : {"localhost", "127.0.0.1", "::1"}) {
    variables["MASTER_ADDR"] = here;
    EXPECT_TRUE(read(variables)->one_machine) << here;
  }
  variables["MASTER_ADDR"] = "[fd00::7]";
  EXPECT_EQ(read(variables)->store_host, "fd00::7");
}

TEST(LaunchEnvironment, AStorePortOfItsOwnWins) {
  const auto found = read({{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "localhost"},
                           {"MASTER_PORT", "29500"},
                           {"PHX_STORE_PORT", "31000"}});
  EXPECT_EQ(found->store_port, 31000);
}

TEST(LaunchEnvironment, ReadsOpenMpi) {
  const auto found = read({{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_PROCID", "0"}});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->under_mpirun());
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 4);
  EXPECT_EQ(found->local_rank, 3);
  EXPECT_EQ(found->store_host, "127.0.0.1");
}

TEST(LaunchEnvironment, ReadsSlurm) {
  Variables variables = {{"SLURM_PROCID", "9"},
                         {"SLURM_STEP_NUM_TASKS", "16"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_STEP_NODELIST", "n[012-013]"},
                         {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "0"}};
  const auto found = read(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "srun");
  EXPECT_EQ(found->rank, 9);
  EXPECT_EQ(found->size, 16);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_size, 8);
  EXPECT_EQ(found->store_host, "n012");
  variables["SLURM_PROCID"] = "0";
  variables.erase("SLURM_LOCALID");
  EXPECT_TRUE(read(variables)->with_rank_zero);
  variables["SLURM_PROCID"] = "10";
  EXPECT_EQ(read(variables)->store_port, found->store_port) << "all ranks go to the same port";
  variables.erase("SLURM_STEP_ID");
  EXPECT_FALSE(read(variables)) << "a batch script is no step";
}

TEST(LaunchEnvironment, FindsTheFirstMachineOfAList) {
  EXPECT_EQ(first_host("gpu1"), "gpu1");
  EXPECT_EQ(first_host("gpu1,gpu2"), "gpu1");
  EXPECT_EQ(first_host("node[007-009,012],login"), "node007");
  EXPECT_EQ(first_host("a[3,5]-ib,b"), "a3-ib");
}

TEST(LaunchEnvironment, SaysWhatIsMissingOrWrong) {
  using testing::error_of;
  EXPECT_EQ(error_of([] {
              read({{"RANK", "1"}});
            }),
            "RANK is in the environment, but WORLD_SIZE is not\n  hint: start ranks with phalanx "
            "launch, torchrun --no-python, mpirun or srun, which set both; or unset RANK");
  EXPECT_EQ(error_of([] {
              read({{"RANK", "one"}, {"WORLD_SIZE", "2"}});
            }),
            "RANK=one in the environment is not a whole number");
  EXPECT_EQ(error_of([] {
              read({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
            }),
            "WORLD_SIZE=2 is in the environment, but MASTER_ADDR is not: it names the machine of "
            "rank 0");
  EXPECT_EQ(error_of([] {
              read({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}});
            }),
            "torchrun says that this is rank 2 of 2");
}

}  // namespace
}  // namespace phx
