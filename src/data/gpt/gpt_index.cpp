#include "phalanx/data/gpt/gpt_index.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>
#include <numeric>
#include <vector>

#include "phalanx/base/big_array.h"
#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/core/thread_pool.h"
#include "phalanx/data/numpy_random.h"

namespace phx {
namespace {

constexpr int64_t kMostNarrow = std::numeric_limits<int32_t>::max();
constexpr int64_t kChunk = 1 << 16;  // documents that a thread takes at a time
constexpr int64_t kAhead = 32;       // lengths fetched before they are needed

// From here on lengths are read from a copy: they are read in the order of the shuffled documents,
// and on a file's small pages nearly every read would miss the cache of addresses.
constexpr int64_t kWorthCopying = 1 << 20;

// The lengths of a range of documents.
struct RangeLengths {
  LengthsView lengths;  // of the range alone
  int64_t first = 0;    // its first document
  BigArray<int32_t> copy = {};

  const std::byte* at(int32_t document) const { return lengths.at(document - first); }
  int64_t of(int32_t document) const { return lengths[document - first]; }
};

RangeLengths range_lengths(LengthsView lengths, SequenceRange range, ThreadPool& threads) {
  RangeLengths result{{lengths.at(range.first), range.count}, range.first};
  if (range.count < kWorthCopying) return result;
  result.copy = BigArray<int32_t>(range.count);
  auto* copy = reinterpret_cast<std::byte*>(result.copy.span().data());
  threads.parallel_for(range.count, kChunk, [&](int64_t begin, int64_t end) {
    std::memcpy(copy + 4 * begin, lengths.at(range.first + begin), size_t(4 * (end - begin)));
  });
  result.lengths.data = copy;
  return result;
}

// f(document position, length) over positions [begin, end). Lengths lie anywhere, so they are
// fetched ahead.
template <class F>
void for_lengths(const RangeLengths& lengths, std::span<const int32_t> documents, int64_t begin,
                 int64_t end, F&& f) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + kAhead < end) __builtin_prefetch(lengths.at(documents[size_t(i + kAhead)]));
    f(i, lengths.of(documents[size_t(i)]));
  }
}

int64_t total_length(LengthsView lengths, SequenceRange range, ThreadPool& threads) {
  std::vector<int64_t> sums(size_t(ceil_div(range.count, kChunk)));
  threads.parallel_for(int64_t(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      int64_t sum = 0;
      const int64_t last = std::min(range.count, (chunk + 1) * kChunk);
      for (int64_t i = chunk * kChunk; i < last; ++i) sum += lengths[range.first + i];
      sums[size_t(chunk)] = sum;
    }
  });
  return std::accumulate(sums.begin(), sums.end(), int64_t{0});
}

BigArray<int32_t> document_index(const GptIndexRequest& request, const EpochPlan& plan,
                                 NumpyRandomState& random, ThreadPool& threads) {
  const int64_t count = request.documents.count;
  BigArray<int32_t> array(plan.epochs * count);
  const std::span<int32_t> documents = array.span();
  threads.parallel_for(int64_t(documents.size()), kChunk, [&](int64_t begin, int64_t end) {
    int64_t document = begin % count;
    for (int64_t i = begin; i < end; ++i) {
      documents[size_t(i)] = int32_t(request.documents.first + document);
      if (++document == count) document = 0;
    }
  });
  if (!plan.last_apart) {
    random.shuffle(documents);
    return array;
  }
  const auto before = size_t((plan.epochs - 1) * count);
  random.shuffle(documents.first(before));
  random.shuffle(documents.subspan(before));
  return array;
}

// Sample j begins at token j * seq_length of all documents end to end: threads find those that fall
// into their chunk of documents, once they know where the chunk begins.
template <class T>
BigArray<T> sample_starts(const RangeLengths& lengths, std::span<const int32_t> documents,
                          int64_t seq_length, int64_t num_samples, ThreadPool& threads) {
  const auto count = int64_t(documents.size()), chunks = ceil_div(count, kChunk);
  std::vector<int64_t> first_token(size_t(chunks) + 1);
  threads.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk)
      for_lengths(lengths, documents, chunk * kChunk, std::min(count, (chunk + 1) * kChunk),
                  [&](int64_t, int64_t length) { first_token[size_t(chunk) + 1] += length; });
  });
  std::partial_sum(first_token.begin(), first_token.end(), first_token.begin());

  BigArray<T> array(2 * (num_samples + 1));
  const std::span<T> starts = array.span();
  threads.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      int64_t token = first_token[size_t(chunk)];
      int64_t sample = std::max<int64_t>(1, ceil_div(token, seq_length));
      int64_t wanted = sample * seq_length;
      for_lengths(lengths, documents, chunk * kChunk, std::min(count, (chunk + 1) * kChunk),
                  [&](int64_t position, int64_t length) {
                    for (; wanted < token + length && sample <= num_samples; ++sample) {
                      starts[2 * size_t(sample)] = T(position);
                      starts[2 * size_t(sample) + 1] = T(wanted - token);
                      wanted += seq_length;
                    }
                    token += length;
                  });
    }
  });
  starts[0] = starts[1] = 0;  // also where the first document is empty
  return array;
}

template <class T>
BigArray<T> shuffle_index(const EpochPlan& plan, NumpyRandomState& random) {
  BigArray<T> array(plan.num_samples);
  const std::span<T> order = array.span();
  std::iota(order.begin(), order.end(), T(0));
  if (!plan.last_apart) {
    random.shuffle(order);
    return array;
  }
  random.shuffle(order.first(size_t(plan.samples_before_last)));
  random.shuffle(order.subspan(size_t(plan.samples_before_last)));
  return array;
}

}  // namespace

EpochPlan plan_epochs(int64_t tokens, int64_t seq_length, std::optional<int64_t> num_samples) {
  PHX_ASSERT(tokens > 0 && seq_length > 0, tokens, " tokens in samples of ", seq_length);
  EpochPlan plan;
  if (num_samples)
    plan.epochs = std::max<int64_t>(1, ceil_div(*num_samples * seq_length + 1, tokens));
  plan.num_samples = (plan.epochs * tokens - 1) / seq_length;
  if (plan.epochs == 1) return plan;
  plan.samples_before_last = ((plan.epochs - 1) * tokens - 1) / seq_length;
  const int64_t in_last = *num_samples - plan.samples_before_last;
  const int64_t in_one = (tokens - 1) / seq_length;
  PHX_ASSERT(in_last >= 0 && in_last <= in_one + 1, in_last, " samples of the last epoch, of ",
             in_one);
  plan.last_apart = in_last < int64_t(0.80 * double(in_one));
  return plan;
}

GptIndex::GptIndex(const Arrays& arrays, std::shared_ptr<const void> memory)
    : memory_(std::move(memory)),
      documents_(arrays.documents),
      starts_(arrays.starts),
      wide_starts_(arrays.wide_starts),
      wide_shuffle_(arrays.wide_shuffle),
      shuffle_(arrays.shuffle),
      num_samples_(int64_t(std::max(shuffle_.size(), wide_shuffle_.size()))) {
  const size_t starts = std::max(starts_.size(), wide_starts_.size());
  PHX_ASSERT(starts == 2 * size_t(num_samples_ + 1), starts, " numbers for the starts of ",
             num_samples_, " samples");
}

GptIndex GptIndex::build(LengthsView lengths, const GptIndexRequest& request, int num_threads) {
  ThreadPool threads(num_threads);
  const SequenceRange& range = request.documents;
  PHX_CHECK(range.first >= 0 && range.count > 0 && range.first + range.count <= lengths.count,
            "documents [", range.first, ", ", range.first + range.count, ") of ", lengths.count);
  PHX_CHECK(lengths.count <= kMostNarrow, "a pair of ", lengths.count,
            " sequences; Megatron's indices count them in 32 bits\n  hint: cut the data into "
            "several pairs and blend them");
  const int64_t tokens = total_length(lengths, range, threads);
  PHX_CHECK(tokens > 0, "the ", range.count, " documents have no tokens");
  const EpochPlan plan = plan_epochs(tokens, request.seq_length, request.num_samples);
  PHX_CHECK(plan.num_samples > 0, "the ", range.count, " documents have ", tokens,
            " tokens; a sample needs sequence length + 1 = ", request.seq_length + 1);

  // One generator for both shuffles. The second one and the starts of the samples need the first,
  // but not each other.
  NumpyRandomState random(request.seed);
  const BigArray<int32_t> documents = document_index(request, plan, random, threads);
  struct Memory {
    BigArray<int32_t> documents, starts;
    BigArray<int64_t> wide_starts, wide_shuffle;
    BigArray<uint32_t> shuffle;
  };
  const auto memory = std::make_shared<Memory>();
  memory->documents = documents;
  const auto shuffle = [&] {
    if (plan.num_samples < int64_t{std::numeric_limits<uint32_t>::max()} - 1)
      memory->shuffle = shuffle_index<uint32_t>(plan, random);
    else
      memory->wide_shuffle = shuffle_index<int64_t>(plan, random);
  };
  std::future<void> beside;
  if (num_threads > 1) beside = std::async(std::launch::async, shuffle);
  const std::span<const int32_t> order = documents.span();
  const RangeLengths near = range_lengths(lengths, range, threads);
  if (int64_t(order.size()) <= kMostNarrow)
    memory->starts =
        sample_starts<int32_t>(near, order, request.seq_length, plan.num_samples, threads);
  else
    memory->wide_starts =
        sample_starts<int64_t>(near, order, request.seq_length, plan.num_samples, threads);
  if (num_threads > 1)
    beside.get();
  else
    shuffle();
  return GptIndex({.documents = order,
                   .starts = memory->starts.span(),
                   .wide_starts = memory->wide_starts.span(),
                   .shuffle = memory->shuffle.span(),
                   .wide_shuffle = memory->wide_shuffle.span()},
                  memory);
}

std::optional<SequenceRange> split_range(std::span<const double> shares, int k,
                                         int64_t num_sequences) {
  double begin = 0;
  for (int i = 0; i < k; ++i) begin += shares[size_t(i)];
  const double end = begin + shares[size_t(k)];
  if (!(begin < end)) return std::nullopt;
  // Python's round: halves go to the even neighbour, as the processor rounds.
  const auto edge = [&](double share) {
    return int64_t(std::nearbyint(share * double(num_sequences)));
  };
  return SequenceRange{edge(begin), edge(end) - edge(begin)};
}

}  // namespace phx
