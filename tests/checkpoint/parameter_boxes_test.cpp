#include "phalanx/checkpoint/parameter_boxes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "checkpoint/checkpoint_model.h"
#include "support/gradients.h"

namespace phx {
namespace {

using phx::testing::CutStore;
using phx::testing::test_device;

// How often each element of each tensor is in one of the boxes.
using Counts = std::map<std::string, std::vector<int>>;

void count(const std::vector<LocalBox>& boxes, Counts& counts) {
  for (const LocalBox& box : boxes) {
    const auto& shape = box.info.shape;
    const int64_t width = shape.size() == 2 ? shape[1] : 1;
    auto& tensor = counts[box.name];
    tensor.resize(size_t(shape[0] * width));
    const int64_t col = shape.size() == 2 ? box.box.begin[1] : 0;
    EXPECT_EQ(box.box.numel(), box.rows * box.cols);
    for (int64_t r = 0; r < box.rows; ++r)
      for (int64_t c = 0; c < box.cols; ++c)
        ++tensor[size_t((box.box.begin[0] + r) * width + col + c)];
  }
}

void expect_once(const Counts& counts) {
  for (const auto& [name, elements] : counts)
    for (size_t i = 0; i < elements.size(); ++i) ASSERT_EQ(elements[i], 1) << name << " " << i;
}

TEST(ParameterBoxes, RandomRangesOfTheStoreCoverEveryElementOnceAndSayWhereItLies) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int size = 1 << round % 3;
    Counts counts;
    for (int rank = 0; rank < size; ++rank) {
      CutStore cut(test_device(), 7, rank, size);
      const int64_t end = cut.store.all().end();
      // Cut into a few ranges anywhere, as optimizer shards are; each with a buffer of its own.
      std::vector<int64_t> cuts = {0, end};
      for (int i = 0; i < 4; ++i) cuts.push_back(int64_t(random() % uint64_t(end)));
      std::sort(cuts.begin(), cuts.end());
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        if (cuts[i] == cuts[i + 1]) continue;
        const FlatRange range{cuts[i], cuts[i + 1] - cuts[i]}, all = cut.store.all();
        const Tensor part = cut.store.weights().rows(range.offset, range.count);
        const FlatState state{"", part, {range}};
        const bool all_ranks = rank == 0;  // the vector is on every rank
        const auto boxes = boxes_of(cut.store, state, {&all, 1}, [&](const Parameter& p) {
          return all_ranks || p.name() != "vector.bias";
        });
        count(boxes, counts);
        // Weights follow from name and global place: one rank's are the truth.
        CutStore truth(test_device(), 7);
        for (const LocalBox& box : boxes) {
          const Parameter& parameter = truth.store.find(box.name);
          const auto values = to_values(parameter.value()), local = to_values(part);
          const int64_t width = parameter.columns(),
                        col = box.info.shape.size() == 2 ? box.box.begin[1] : 0;
          for (int64_t r = 0; r < box.rows; ++r)
            for (int64_t c = 0; c < box.cols; ++c)
              ASSERT_EQ(local[size_t(box.offset + r * box.pitch + c)],
                        values[size_t((box.box.begin[0] + r) * width + col + c)])
                  << box.name;
        }
      }
    }
    EXPECT_EQ(counts.size(), 4u);
    expect_once(counts);
  }
}

TEST(ParameterBoxes, SharesOfRanksWithTheSameStoreAreAllOfItOnceAndKeepRowsWhole) {
  for (int size = 1; size <= 5; ++size) {
    Counts counts;
    for (int rank = 0; rank < size; ++rank) {
      CutStore cut(test_device(), 7);
      const FlatRange share = share_of(cut.store, rank, size);
      const auto boxes = boxes_of(cut.store, cut.states()[0], {&share, 1});
      count(boxes, counts);
      for (const LocalBox& box : boxes)
        EXPECT_TRUE(box.info.shape.size() == 1 || box.cols == box.info.shape[1]);
    }
    expect_once(counts);
  }
}

}  // namespace
}  // namespace phx
