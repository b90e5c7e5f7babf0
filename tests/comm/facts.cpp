#include "comm/facts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "phalanx/comm/scratch.h"

namespace phx::testing {

namespace {

void add_to_digest(uint64_t& digest, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    digest = (digest ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
}

void take_in(uint64_t& digest, const Tensor& x) {
  if (x.numel() == 0) return;
  std::vector<std::byte> bytes(x.bytes());
  copy_to_host(x, bytes.data());
  add_to_digest(digest, bytes.data(), bytes.size());
}

// What rank `r` holds at index i: spread over signs and magnitudes, so that sums do round.
double value(int r, int64_t i, DType dtype) {
  uint64_t h = (uint64_t(i) * 64 + uint64_t(r)) * 0x9e3779b97f4a7c15ull;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9ull;
  h ^= h >> 32;
  if (dtype == DType::u8) return double(h % 16);
  if (!is_float(dtype)) return double(int64_t(h % 2000001) - 1000000);
  return (double(h % 1000003) / 500001.5 - 1) * std::exp2(double(h >> 60) - 8);
}

Tensor filled(int r, int64_t first, const Shape& shape, DType dtype, Device device) {
  if (shape.numel() == 0) return empty(shape, dtype, device);
  std::vector<double> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i) values[i] = value(r, first + int64_t(i), dtype);
  return from_values(values, shape, dtype, device);
}

// As the tensor would hold it.
template <class T>
T stored(double x) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>)
    return T(float(x));
  else
    return T(x);
}

// The reduction done by hand: from rank 0 on, in acc_dtype, rounded once. Also how far a sum in
// another order may be from it.
struct Expected {
  double value, slack;
};
Expected reduced(int ranks, int64_t i, DType dtype, ReduceOp op) {
  Expected result{};
  for_any_dtype(dtype, [&]<class T>() {
    using Sum = std::conditional_t<std::is_integral_v<T>, T, acc_t<T>>;
    Sum sum(stored<T>(value(0, i, dtype)));
    double magnitude = std::abs(double(sum));
    for (int r = 1; r < ranks; ++r) {
      const Sum x(stored<T>(value(r, i, dtype)));
      sum = op == ReduceOp::sum ? Sum(sum + x) : std::max(sum, x);
      magnitude += std::abs(double(x));
    }
    result.value = double(stored<T>(double(sum)));
    // Another order, and a rounding after every addition: half a unit in the last place each.
    const double unit = dtype == DType::f64    ? 0x1p-52
                        : dtype == DType::f32  ? 0x1p-23
                        : dtype == DType::f16  ? 0x1p-10
                        : dtype == DType::bf16 ? 0x1p-7
                                               : 0.;
    result.slack = op == ReduceOp::max ? 0. : unit * ranks * magnitude;
  });
  return result;
}

void expect_elements(const Tensor& got, const std::function<Expected(int64_t)>& wanted) {
  if (got.numel() == 0) return;
  const bool exact = got.device().kind() == DeviceKind::cpu;  // NCCL has its own order
  const std::vector<double> values = to_values(got);
  for (size_t i = 0; i < values.size(); ++i) {
    const Expected expected = wanted(int64_t(i));
    PHX_CHECK(std::abs(values[i] - expected.value) <= (exact ? 0. : expected.slack), "element ", i,
              " of ", got.shape(), " ", got.dtype(), " is ", values[i], ", not ", expected.value);
  }
}

void expect_from(const Tensor& got, int r, int64_t first) {
  expect_elements(got, [&](int64_t i) -> Expected {
    double x = 0;
    for_any_dtype(got.dtype(),
                  [&]<class T>() { x = double(stored<T>(value(r, first + i, got.dtype()))); });
    return {x, 0};
  });
}

std::unique_ptr<Communicator> everybody(World& world) {
  std::vector<int> ranks(world.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.group(ranks, "all");
}

Stream compute(Device device) { return device.runtime().stream(StreamName::compute); }

// --- the facts

void all_reduce_adds_in_rank_order(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  // Odd sizes; the last one needs several blocks of scratch in the largest type.
  const int64_t long_one = kReduceScratchBytes / 8 + 12345;
  for (DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    for (int64_t n : {int64_t{1}, int64_t{3}, int64_t{1001}, int64_t{70001}, long_one}) {
      if (n == long_one && dtype != DType::f64) continue;
      const Tensor x = filled(all->rank(), 0, {n}, dtype, device);
      all->all_reduce(x, compute(device));
      expect_elements(x, [&](int64_t i) { return reduced(all->size(), i, dtype, ReduceOp::sum); });
      take_in(digest, x);
    }
  }
}

void all_reduce_finds_the_maximum(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64}) {
    for (int64_t n : {5, 20001}) {
      const Tensor x = filled(all->rank(), 7, {n}, dtype, device);
      all->all_reduce(x, compute(device), ReduceOp::max);
      expect_elements(x,
                      [&](int64_t i) { return reduced(all->size(), i + 7, dtype, ReduceOp::max); });
      take_in(digest, x);
    }
  }
}

void all_gather_puts_shards_in_rank_order(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  for (DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8}) {
    for (int64_t n : {1, 3, 1111}) {
      const Tensor shard = filled(all->rank(), 0, {n, 5}, dtype, device);
      Tensor full = empty({all->size() * n, 5}, dtype, device);
      all->all_gather(shard, full, compute(device));
      for (int r = 0; r < all->size(); ++r) expect_from(full.rows(r * n, n), r, 0);

      Tensor in_place = zeros({all->size() * n, 5}, dtype, device);
      Tensor mine = in_place.rows(all->rank() * n, n);
      copy(shard, mine);
      all->all_gather(mine, in_place, compute(device));
      for (int r = 0; r < all->size(); ++r) expect_from(in_place.rows(r * n, n), r, 0);
      take_in(digest, in_place);
    }
  }
}

void reduce_scatter_adds_in_rank_order(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::i64}) {
    for (int64_t n : {1, 7, 1501}) {
      const int64_t first = all->rank() * n * 3;
      const auto sum = [&](int64_t i) {
        return reduced(all->size(), first + i, dtype, ReduceOp::sum);
      };
      const Tensor full = filled(all->rank(), 0, {all->size() * n, 3}, dtype, device);
      const Tensor shard = empty({n, 3}, dtype, device);
      all->reduce_scatter(full, shard, compute(device));
      expect_elements(shard, sum);
      expect_from(full, all->rank(), 0);  // untouched

      const Tensor mine = full.rows(all->rank() * n, n);
      all->reduce_scatter(full, mine, compute(device));
      expect_elements(mine, sum);
      take_in(digest, mine);
    }
  }
}

void broadcast_comes_from_any_root(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  for (int root = 0; root < all->size(); ++root) {
    for (int64_t n : {1, 13, 50001}) {
      const Tensor x = filled(all->rank(), root, {n}, DType::f32, device);
      all->broadcast(x, root, compute(device));
      expect_from(x, root, root);
      take_in(digest, x);
    }
  }
}

void all_to_all_transposes_blocks(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  const int64_t n = 3;
  const Tensor in = filled(all->rank(), 0, {all->size() * n, 7}, DType::bf16, device);
  const Tensor out = empty_like(in);
  all->all_to_all(in, out, compute(device));
  for (int r = 0; r < all->size(); ++r) expect_from(out.rows(r * n, n), r, all->rank() * n * 7);
  take_in(digest, out);
}

// Rank a sends (3 a + 5 b) mod 4 rows to b: some none, some to themselves.
void all_to_all_takes_uneven_rows(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  const auto rows = [](int a, int b) { return int64_t(3 * a + 5 * b) % 4; };
  std::vector<int64_t> send, receive;
  for (int r = 0; r < all->size(); ++r) {
    send.push_back(rows(all->rank(), r));
    receive.push_back(rows(r, all->rank()));
  }
  const auto total = [](const std::vector<int64_t>& v) {
    return std::accumulate(v.begin(), v.end(), int64_t{0});
  };
  const Tensor in = filled(all->rank(), 0, {total(send), 11}, DType::f32, device);
  const Tensor out = empty({total(receive), 11}, DType::f32, device);
  all->all_to_all(in, send, out, receive, compute(device));
  int64_t at = 0;
  for (int r = 0; r < all->size(); ++r) {
    int64_t theirs = 0;  // the rows of r before mine
    for (int b = 0; b < all->rank(); ++b) theirs += rows(r, b);
    expect_from(out.rows(at, receive[r]), r, theirs * 11);
    at += receive[r];
  }
  take_in(digest, out);
}

void messages_arrive_in_order(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  if (all->size() == 1) return;
  const int next = (all->rank() + 1) % all->size();
  const int before = (all->rank() + all->size() - 1) % all->size();
  // Enough for the buffers of any socket; everybody sends before anybody receives.
  const int64_t sizes[] = {1, 250007, 5, 400009, 3};
  std::vector<Tensor> outgoing, incoming;
  std::vector<Message> messages;
  for (int64_t n : sizes) {
    outgoing.push_back(filled(all->rank(), n, {n}, DType::f32, device));
    incoming.push_back(empty({n}, DType::f32, device));
    messages.push_back({Message::Kind::send, outgoing.back(), next});
    messages.push_back({Message::Kind::receive, incoming.back(), before});
  }
  all->exchange(messages, compute(device));
  for (const Tensor& x : incoming) {
    expect_from(x, before, x.numel());
    take_in(digest, x);
  }
}

// Sends come back before anybody receives, and collectives in between do not mix with messages.
void sends_do_not_wait_for_receives(World& world, Device device, uint64_t& digest) {
  const auto all = everybody(world);
  if (all->size() == 1 || all->asynchronous()) return;
  const int next = (all->rank() + 1) % all->size();
  const int before = (all->rank() + all->size() - 1) % all->size();
  for (int i = 0; i < 3; ++i)
    all->send(filled(all->rank(), i, {100003}, DType::f32, device), next, compute(device));
  const Tensor x = filled(all->rank(), 0, {50021}, DType::f64, device);
  all->all_reduce(x, compute(device));
  for (int i = 0; i < 3; ++i) {
    const Tensor got = empty({100003}, DType::f32, device);
    all->receive(got, before, compute(device));
    expect_from(got, before, i);
    take_in(digest, got);
  }
}

// Halves of the world and pairs across them, used in turns; each half a different number of times.
void groups_do_not_disturb_each_other(World& world, Device device, uint64_t& digest) {
  std::vector<int> half, pair;
  for (int r = 0; r < world.size(); ++r)
    if (r % 2 == world.rank() % 2) half.insert(half.begin(), r);  // backwards: order is ours
  for (int r = world.rank() / 2 * 2; r < std::min(world.rank() / 2 * 2 + 2, world.size()); ++r)
    pair.push_back(r);
  const auto halves = world.group(half, "half");
  const auto pairs = world.group(pair, "pair");
  const auto again = world.group(pair, "pair");
  PHX_CHECK(halves->members()[halves->rank()] == world.rank(), "a group lost its order");
  for (int turn = 0; turn < 5; ++turn) {
    const int times = world.rank() % 2 == 0 ? 1 : 3;
    for (int i = 0; i < times; ++i) {
      const Tensor x = filled(halves->rank(), turn, {3001}, DType::f32, device);
      halves->all_reduce(x, compute(device));
      expect_elements(x, [&](int64_t k) {
        return reduced(halves->size(), k + turn, DType::f32, ReduceOp::sum);
      });
      take_in(digest, x);
    }
    const Tensor y = filled(pairs->rank(), turn, {17}, DType::f64, device);
    (turn % 2 == 0 ? *pairs : *again).all_reduce(y, compute(device));
    expect_elements(
        y, [&](int64_t k) { return reduced(pairs->size(), k + turn, DType::f64, ReduceOp::sum); });
    take_in(digest, y);
  }
}

void a_group_of_one_keeps_its_values(World& world, Device device, uint64_t&) {
  const auto one = world.group({world.rank()}, "one");
  const Tensor x = filled(3, 0, {9, 2}, DType::f32, device);
  one->all_reduce(x, compute(device));
  one->broadcast(x, 0, compute(device));
  one->barrier();
  expect_from(x, 3, 0);
  for (const auto call : {&Communicator::all_gather, &Communicator::reduce_scatter}) {
    const Tensor y = zeros({9, 2}, DType::f32, device);
    ((*one).*call)(x, y, compute(device), std::source_location::current());
    expect_from(y, 3, 0);
  }
  const Tensor y = zeros({9, 2}, DType::f32, device);
  one->all_to_all(x, y, compute(device));
  expect_from(y, 3, 0);
}

void empty_tensors_pass(World& world, Device device, uint64_t&) {
  const auto all = everybody(world);
  const Tensor none = empty({0, 4}, DType::f32, device);
  all->all_reduce(none, compute(device));
  all->all_gather(none, none, compute(device));
  all->reduce_scatter(none, none, compute(device));
  all->broadcast(none, 0, compute(device));
  all->all_to_all(none, none, compute(device));
  if (all->size() > 1) {
    const Message messages[] = {
        {Message::Kind::send, none, (all->rank() + 1) % all->size()},
        {Message::Kind::receive, none, (all->rank() + all->size() - 1) % all->size()}};
    all->exchange(messages, compute(device));
  }
  const Tensor x = filled(all->rank(), 0, {2}, DType::f32, device);
  all->all_reduce(x, compute(device));
  expect_elements(x, [&](int64_t i) { return reduced(all->size(), i, DType::f32, ReduceOp::sum); });
}

// After a barrier everybody has seen what was sent before it.
void a_barrier_is_passed_by_all(World& world, Device device, uint64_t&) {
  const auto all = everybody(world);
  for (int i = 0; i < 3; ++i) all->barrier();
  const Tensor x = filled(all->rank(), 0, {2}, DType::i64, device);
  all->all_reduce(x, compute(device));
  all->barrier();
  expect_elements(x, [&](int64_t i) { return reduced(all->size(), i, DType::i64, ReduceOp::sum); });
}

}  // namespace

const std::vector<Fact>& facts() {
  static const std::vector<Fact> list = {
      {"AllReduceAddsInRankOrder", all_reduce_adds_in_rank_order},
      {"AllReduceFindsTheMaximum", all_reduce_finds_the_maximum},
      {"AllGatherPutsShardsInRankOrder", all_gather_puts_shards_in_rank_order},
      {"ReduceScatterAddsInRankOrder", reduce_scatter_adds_in_rank_order},
      {"BroadcastComesFromAnyRoot", broadcast_comes_from_any_root},
      {"AllToAllTransposesBlocks", all_to_all_transposes_blocks},
      {"AllToAllTakesUnevenRows", all_to_all_takes_uneven_rows},
      {"MessagesArriveInOrder", messages_arrive_in_order},
      {"SendsDoNotWaitForReceives", sends_do_not_wait_for_receives},
      {"GroupsDoNotDisturbEachOther", groups_do_not_disturb_each_other},
      {"AGroupOfOneKeepsItsValues", a_group_of_one_keeps_its_values},
      {"EmptyTensorsPass", empty_tensors_pass},
      {"ABarrierIsPassedByAll", a_barrier_is_passed_by_all},
  };
  return list;
}

uint64_t check_facts(World& world, Device device) {
  uint64_t digest = 14695981039346656037ull;
  for (const Fact& fact : facts()) {
    try {
      fact.check(world, device, digest);
    } catch (const std::exception& error) {
      throw_error(str_cat("rank ", world.rank(), ": ", fact.name, ": ", error.what()));
    }
  }
  const auto all = everybody(world);
  const int64_t mine[] = {int64_t(digest)};
  const Tensor shard = from_ints(mine, {1}, DType::i64, device);
  const Tensor full = empty({world.size()}, DType::i64, device);
  all->all_gather(shard, full, compute(device));
  uint64_t together = 14695981039346656037ull;
  take_in(together, full);
  return together;
}

}  // namespace phx::testing
