#include "phalanx/kernels/attention_products.h"

#include <algorithm>
#include <bit>

#include "phalanx/base/math.h"
#include "phalanx/kernels/attention_product_room.h"

namespace phx::kernels {

namespace {

using namespace products;

// Some key heads of one sequence, with the query heads that use them.
struct Chunk {
  int64_t sequence, first_key_head, key_heads;
};
template <class F>
void each_chunk(const AttentionInputs& in, int64_t key_heads, F&& f) {
  for (int64_t sequence = 0; sequence < in.q.b; ++sequence)
    for (int64_t head = 0; head < in.k.n; head += key_heads) f(Chunk{sequence, head, key_heads});
}

// A meta device has no addresses: views begin at their offset within an aligned allocation.
HeadRows rows_of(const HeadView& x, const Chunk& chunk, int64_t group) {
  const uintptr_t base =
      x.device().kind() == DeviceKind::meta ? 0 : reinterpret_cast<uintptr_t>(x.base.raw());
  const int64_t first =
      x.offset + chunk.sequence * x.stride_b + chunk.first_key_head * group * x.stride_n;
  return {.at = base + uintptr_t(first * size_of(x.dtype())),
          .stride_s = x.stride_s,
          .stride_g = group * x.stride_n,
          .stride_h = x.stride_n};
}
HeadRows gathered(uintptr_t at, const Sizes& of, int64_t d) {
  return {.at = at, .stride_s = of.group * d, .stride_g = of.rows() * d, .stride_h = d};
}

// A matrix of every key head of the chunk.
struct Matrix {
  uintptr_t at;
  GemmLayout layout;
};

class Multiplier {
 public:
  Multiplier(ProductDevice& device, DType dtype, const Sizes& of, int64_t key_heads)
      : device_(device), dtype_(dtype), of_(of), key_heads_(key_heads) {}

  // The rows of queries [first, ..): all heads of a group, query by query.
  Matrix queries(const HeadRows& x, int64_t first) const {
    return {x.at + uintptr_t(first * x.stride_s * of_.element),
            {of_.group == 1 ? x.stride_s : x.stride_h, x.stride_g}};
  }
  Matrix keys(const HeadRows& x, int64_t first) const {
    return {x.at + uintptr_t(first * x.stride_s * of_.element), {x.stride_s, x.stride_g}};
  }

  struct Extents {
    int64_t m, n, k;
  };
  enum class Form { plain, a_transposed, b_transposed };
  void operator()(const Extents& of, Form form, const Matrix& a, const Matrix& b, const Matrix& c,
                  DType out) const {
    const auto align = [](const Matrix& x, DType dtype) {
      const uint64_t bits = uint64_t(x.at) | uint64_t(x.layout.matrix * size_of(dtype));
      return uint32_t(1) << std::min(8, std::countr_zero(bits));
    };
    device_.multiply({.operands = dtype_,
                      .out = out,
                      .m = of.m,
                      .n = of.n,
                      .k = of.k,
                      .batch = key_heads_,
                      .transpose_a = form == Form::a_transposed,
                      .transpose_b = form == Form::b_transposed,
                      .align_a = align(a, dtype_),
                      .align_b = align(b, dtype_),
                      .align_c = align(c, out),
                      .layout_a = a.layout,
                      .layout_b = b.layout,
                      .layout_c = c.layout},
                     a.at, b.at, c.at);
  }

 private:
  ProductDevice& device_;
  DType dtype_;
  const Sizes& of_;
  int64_t key_heads_;
};
using Form = Multiplier::Form;

}  // namespace

int64_t product_key_heads(const AttentionInputs& in, AttentionPass pass,
                          const ProductSizes& sizes) {
  const Sizes of(in, sizes);
  for (int64_t heads = in.k.n; heads > 0; --heads)
    if (in.k.n % heads == 0 && bytes_for(of, pass, heads) <= sizes.bytes) return heads;
  return 0;
}

int64_t product_workspace_bytes(const AttentionInputs& in, AttentionPass pass,
                                const ProductSizes& sizes) {
  return bytes_for(Sizes(in, sizes), pass, product_key_heads(in, pass, sizes));
}

const char* why_no_products(const AttentionInputs& in) {
  if (in.packed()) return "with a soft cap packed documents have no faster path";
  for (const HeadView* x : {&in.q, &in.k, &in.v})
    if (x->d % 8 || x->offset % 8 || x->stride_s % 8 || x->stride_b % 8 || x->stride_n % 8)
      return "matrix products need head sizes and strides that are multiples of 8";
  if (in.q.d < kProductLeastChannels)
    return "with a soft cap heads of fewer than 64 channels have no faster path";
  if (in.q.s < kProductLeastQueries)
    return "with a soft cap fewer than 512 queries have no faster path";
  if (in.k.s > kProductMostKeys) return "with a soft cap more than 16384 keys have no faster path";
  if (product_key_heads(in, AttentionPass::backward) == 0)
    return "matrix products would need over 1.5 GiB for the scores of one key head";
  return nullptr;
}

void product_attention(ProductDevice& device, const AttentionInputs& in,
                       const AttentionOptions& options, const HeadView& o, uintptr_t workspace,
                       const ProductSizes& sizes) {
  const Sizes of(in, sizes);
  const Mask mask(in, options, of.block);
  const int64_t key_heads = product_key_heads(in, AttentionPass::forward, sizes);
  PHX_CHECK(key_heads > 0, "attention: ", sizes.bytes,
            " bytes do not hold the scores of a key head");
  const Multiplier multiply(device, in.q.dtype(), of, key_heads);
  Room all(workspace);
  const ForwardRoom room(of, key_heads, all);
  const ProductDevice::Extent q_extent{of.sq, key_heads, of.group, of.d};
  const ProductDevice::Extent o_extent{of.sq, key_heads, of.group, of.dv};

  each_chunk(in, key_heads, [&](const Chunk& chunk) {
    HeadRows q = rows_of(in.q, chunk, of.group), out = rows_of(o, chunk, of.group);
    const HeadRows k = rows_of(in.k, chunk, 1), v = rows_of(in.v, chunk, 1), final_out = out;
    if (of.gathers) {
      device.copy_rows(q_extent, q, gathered(room.q, of, of.d));
      q = gathered(room.q, of, of.d);
      out = gathered(room.o, of, of.dv);
    }
    for (int64_t first = 0; first < of.sq; first += of.block) {
      const Range queries{first, std::min(of.sq, first + of.block)};
      const Range keys = mask.keys_of(queries, kVector);
      const int64_t rows = queries.size() * of.group, row = round_up(keys.size(), kVector);
      const Matrix scores{room.scores, {row, rows * row}};           // f32 [rows, keys]
      const Matrix weights{room.scores, {2 * row, 2 * rows * row}};  // in the scores' place
      multiply({rows, keys.size(), of.d}, Form::b_transposed, multiply.queries(q, first),
               multiply.keys(k, keys.begin), scores, DType::f32);
      device.softmax({.key_heads = key_heads,
                      .group = of.group,
                      .first_query = queries.begin,
                      .queries = queries.size(),
                      .first_key = keys.begin,
                      .keys = keys.size(),
                      .scores = room.scores,
                      .row = row,
                      .lse_head = chunk.sequence * in.q.n + chunk.first_key_head * of.group});
      multiply({rows, of.dv, keys.size()}, Form::plain, weights, multiply.keys(v, keys.begin),
               multiply.queries(out, first), in.q.dtype());
    }
    if (of.gathers) device.copy_rows(o_extent, out, final_out);
  });
}

void product_attention_backward(ProductDevice& device, const AttentionInputs& in,
                                const AttentionOptions& options, const HeadView& o,
                                const HeadView& d_o, const AttentionGradients& grads,
                                uintptr_t workspace, const ProductSizes& sizes) {
  const Sizes of(in, sizes);
  const Mask mask(in, options, of.block);
  const DType dtype = in.q.dtype();
  const int64_t key_heads = product_key_heads(in, AttentionPass::backward, sizes);
  PHX_CHECK(key_heads > 0, "attention: ", sizes.bytes,
            " bytes do not hold the scores of a key head");
  const Multiplier multiply(device, dtype, of, key_heads);
  Room all(workspace);
  const BackwardRoom room(of, key_heads, all);
  const ProductDevice::Extent q_extent{of.sq, key_heads, of.group, of.d};
  const ProductDevice::Extent o_extent{of.sq, key_heads, of.group, of.dv};

  each_chunk(in, key_heads, [&](const Chunk& chunk) {
    HeadRows q = rows_of(in.q, chunk, of.group), d_out = rows_of(d_o, chunk, of.group);
    HeadRows dq = rows_of(grads.dq, chunk, of.group);
    const HeadRows k = rows_of(in.k, chunk, 1), v = rows_of(in.v, chunk, 1), final_dq = dq;
    const HeadRows dk = rows_of(grads.dk, chunk, 1), dv = rows_of(grads.dv, chunk, 1);
    const HeadRows aside =
        of.gathers ? gathered(room.d_o_then_dq, of, of.dv) : HeadRows{};  // nowhere
    device.delta(o_extent, rows_of(o, chunk, of.group), d_out, aside, room.delta);
    if (of.gathers) {
      device.copy_rows(q_extent, q, gathered(room.q, of, of.d));
      q = gathered(room.q, of, of.d);
      d_out = aside;
      dq = gathered(room.d_o_then_dq, of, of.d);
    }
    // Every block of keys, with all queries that see it: dk and dv are one product each.
    for (int64_t first = 0; first < of.sk; first += of.block) {
      const Range keys{first, std::min(of.sk, first + of.block)};
      const Range queries = mask.queries_of(keys);
      const Matrix to_dk = multiply.keys(dk, first), to_dv = multiply.keys(dv, first);
      if (queries.size() == 0) {
        device.zero_rows({keys.size(), key_heads, 1, of.d},
                         {to_dk.at, dk.stride_s, dk.stride_g, dk.stride_h});
        device.zero_rows({keys.size(), key_heads, 1, of.dv},
                         {to_dv.at, dv.stride_s, dv.stride_g, dv.stride_h});
        continue;
      }
      const int64_t rows = queries.size() * of.group, row = round_up(keys.size(), kVector);
      const GemmLayout block{row, rows * row};
      const Matrix scores{room.scores, block}, dp{room.dp, block};  // f32 [rows, keys]
      const Matrix weights{room.weights, block};                    // [rows, keys]
      const Matrix ds{
          room.ds + uintptr_t((queries.begin * of.group * of.key_row + first) * of.element),
          {of.key_row, of.rows() * of.key_row}};  // [rows, keys], of [sq * group, sk]
      const Matrix q_rows = multiply.queries(q, queries.begin);        // [rows, d]
      const Matrix d_o_rows = multiply.queries(d_out, queries.begin);  // [rows, dv]
      multiply({rows, keys.size(), of.d}, Form::b_transposed, q_rows, multiply.keys(k, first),
               scores, DType::f32);
      multiply({rows, keys.size(), of.dv}, Form::b_transposed, d_o_rows, multiply.keys(v, first),
               dp, DType::f32);
      device.differentiate({.key_heads = key_heads,
                            .group = of.group,
                            .first_query = queries.begin,
                            .queries = queries.size(),
                            .first_key = first,
                            .keys = keys.size(),
                            .scores = room.scores,
                            .row = row,
                            .lse_head = chunk.sequence * in.q.n + chunk.first_key_head * of.group},
                           {.dp = room.dp,
                            .delta = room.delta,
                            .weights = room.weights,
                            .ds = room.ds,
                            .ds_row = of.key_row});
      multiply({keys.size(), of.dv, rows}, Form::a_transposed, weights, d_o_rows, to_dv, dtype);
      multiply({keys.size(), of.d, rows}, Form::a_transposed, ds, q_rows, to_dk, dtype);
    }
    for (int64_t first = 0; first < of.sq; first += of.block) {
      const Range queries{first, std::min(of.sq, first + of.block)};
      const Range keys = mask.keys_of(queries, of.block);
      const Matrix ds{
          room.ds + uintptr_t((first * of.group * of.key_row + keys.begin) * of.element),
          {of.key_row, of.rows() * of.key_row}};
      multiply({queries.size() * of.group, of.d, keys.size()}, Form::plain, ds,
               multiply.keys(k, keys.begin), multiply.queries(dq, first), dtype);
    }
    if (of.gathers) device.copy_rows(q_extent, dq, final_dq);
  });
}

}  // namespace phx::kernels
