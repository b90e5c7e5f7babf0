#include "phalanx/comm/job_key.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(JobKey, IsMadeOfRandomDigits) {
  EXPECT_EQ(make_job_key().size(), 32u);
  EXPECT_NE(make_job_key(), make_job_key());
  EXPECT_EQ(job_key_problem(make_job_key()), "");
}

TEST(JobKey, AShortOneIsRefusedWithItsLength) {
  EXPECT_EQ(job_key_problem("0123456789abcdef"), "");
  EXPECT_EQ(job_key_problem("0123456789abcde"),
            "PHX_JOB_KEY has 15 characters, but needs at least 16: a short one can be guessed");
}

TEST(JobKey, AKeyForOnePurposeIsNotThatOfAnother) {
  const JobKey key("a key that the ranks share");
  EXPECT_EQ(key.with("rank 1").code("x"), key.with("rank 1").code("x"));
  EXPECT_NE(key.with("rank 1").code("x"), key.with("rank 2").code("x"));
  EXPECT_NE(key.with("rank 1").code("x"), key.code("x"));
  EXPECT_NE(key.with("rank 1").code("x"), JobKey("another").with("rank 1").code("x"));
  EXPECT_EQ(key.with("rank 1").secret().size(), 32u) << "all of the digest";
}

TEST(JobKey, RandomBytesAreAsManyAsAsked) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(33).size(), 33u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

}  // namespace
}  // namespace phx
