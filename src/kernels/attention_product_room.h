// What attention by products (attention_products.h) computes and where: which blocks of keys and
// queries see each other, and what lies where in the workspace.
#pragma once

#include <algorithm>
#include <cstdint>

#include "phalanx/base/math.h"
#include "phalanx/kernels/attention_products.h"

namespace phx::kernels::products {

inline constexpr int64_t kF32 = 4;
inline constexpr int64_t kAlign = 256;  // bytes
inline constexpr int64_t kVector = 8;   // 16-bit elements that a row of scores is a multiple of

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Which keys see which queries, by blocks.
class Mask {
 public:
  Mask(const AttentionInputs& in, const AttentionOptions& options, int64_t block)
      : queries_(in.q.s), keys_(in.k.s), block_(block), options_(options) {}

  // Keys that some query of these sees, from a multiple of `step` on.
  Range keys_of(const Range& queries, int64_t step) const {
    const int64_t shift = keys_ - queries_;
    const int64_t end = options_.causal ? std::min(keys_, queries.end + shift) : keys_;
    if (options_.window_left < 0) return {0, end};
    return {std::max<int64_t>(0, queries.begin + shift - options_.window_left) / step * step, end};
  }
  // Blocks of queries that see some of these keys, which are a block.
  Range queries_of(const Range& keys) const {
    Range seen;
    for (int64_t first = 0; first < queries_; first += block_) {
      const Range block = {first, std::min(queries_, first + block_)};
      const Range range = keys_of(block, block_);
      if (range.begin >= keys.end || range.end <= keys.begin) continue;
      if (seen.size() == 0) seen.begin = block.begin;
      seen.end = block.end;
    }
    return seen;
  }

 private:
  int64_t queries_, keys_, block_;
  AttentionOptions options_;
};

// The sizes of a problem, and of what is made of it for some key heads.
struct Sizes {
  int64_t group, sq, sk, d, dv, element;
  int64_t block;
  int64_t key_row;    // of a whole row of scores
  int64_t block_row;  // of a block of keys
  bool gathers;       // heads that share keys are made rows of one matrix, query by query

  Sizes(const AttentionInputs& in, const ProductSizes& sizes)
      : group(in.q.n / in.k.n),
        sq(in.q.s),
        sk(in.k.s),
        d(in.q.d),
        dv(in.v.d),
        element(size_of(in.q.dtype())),
        block(sizes.block),
        key_row(round_up(sk, kVector)),
        block_row(std::min(block, key_row)),
        gathers(group > 1) {}

  int64_t rows() const { return sq * group; }
  int64_t block_rows() const { return std::min(block, sq) * group; }
};

// Addresses within the workspace, one behind the other.
class Room {
 public:
  explicit Room(uintptr_t at) : first_(at), next_(at) {}
  uintptr_t take(int64_t bytes) {
    const uintptr_t at = next_;
    next_ += uintptr_t(round_up(bytes, kAlign));
    return at;
  }
  int64_t bytes() const { return int64_t(next_ - first_); }

 private:
  uintptr_t first_, next_;
};

struct ForwardRoom {
  uintptr_t q = 0, o = 0, scores;
  ForwardRoom(const Sizes& of, int64_t key_heads, Room& room) {
    if (of.gathers) q = room.take(key_heads * of.rows() * of.d * of.element);
    if (of.gathers) o = room.take(key_heads * of.rows() * of.dv * of.element);
    scores = room.take(key_heads * of.block_rows() * of.key_row * kF32);
  }
};

struct BackwardRoom {
  uintptr_t q = 0, d_o_then_dq = 0, delta, scores, dp, weights, ds;
  BackwardRoom(const Sizes& of, int64_t key_heads, Room& room) {
    if (of.gathers) q = room.take(key_heads * of.rows() * of.d * of.element);
    // dq is made when do is done with, and has as many channels or more.
    if (of.gathers) d_o_then_dq = room.take(key_heads * of.rows() * of.d * of.element);
    delta = room.take(key_heads * of.rows() * kF32);
    const int64_t block = key_heads * of.rows() * of.block_row;
    scores = room.take(block * kF32);
    dp = room.take(block * kF32);
    weights = room.take(block * of.element);
    ds = room.take(key_heads * of.rows() * of.key_row * of.element);
  }
};

inline int64_t bytes_for(const Sizes& of, AttentionPass pass, int64_t key_heads) {
  Room room(0);
  if (pass == AttentionPass::forward)
    ForwardRoom(of, key_heads, room);
  else
    BackwardRoom(of, key_heads, room);
  return room.bytes();
}

}  // namespace phx::kernels::products
