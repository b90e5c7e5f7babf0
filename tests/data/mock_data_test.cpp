#include "phalanx/data/mock_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

TEST(NumpyGenerator, GivesNumpysNumbers) {
  EXPECT_EQ(NumpyGenerator(0).next_u64(), 11749869230777074271u);
  // numpy.random.default_rng(12345).integers(-5, 100, 8, dtype="int32")
  NumpyGenerator generator(12345);
  std::vector<int32_t> numbers(8);
  for (int32_t& number : numbers) number = generator.integer(-5, 100);
  EXPECT_THAT(numbers, ElementsAre(68, 18, 77, 28, 16, 78, 62, 66));
  EXPECT_EQ(generator.integer(3, 4), 3);
}

TEST(MockDocuments, LengthsAreMegatrons) {
  const MockDocuments documents(1000, 999);
  const LengthsView view = documents.lengths();
  ASSERT_EQ(view.count, 100000);
  std::vector<int32_t> all(100000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = view[int64_t(i)];
  const std::span<const int32_t> lengths = all;
  EXPECT_THAT(lengths.first(12),
              ElementsAre(3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331, 2660, 3738));
  EXPECT_THAT(lengths.last(3), ElementsAre(61, 100, 769));
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), 204637097);
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 1);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 4095);
}

TEST(MockDocuments, ADocumentCountsUpAndEnds) {
  const MockDocuments documents(50, 49);
  const std::vector<int32_t> tokens = documents.document(7);  // of length 68
  ASSERT_EQ(tokens.size(), 68u);
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(tokens[48], 49);
  EXPECT_EQ(tokens[49], 0);  // 50 mod 50
  EXPECT_EQ(tokens[66], 17);
  EXPECT_EQ(tokens[67], 49);
  std::vector<int32_t> piece(3);
  documents.copy(7, 65, piece);
  EXPECT_THAT(piece, ElementsAre(16, 17, 49));
}

TEST(MockDocuments, TheEndMustBeInTheVocabulary) { EXPECT_THROW(MockDocuments(50, 50), Error); }

}  // namespace
}  // namespace phx
