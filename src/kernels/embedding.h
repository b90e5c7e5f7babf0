// Rows of a table by index: y[..] = scale * table[ids[..]]. A rank may hold only rows
// [first_row, first_row + rows) of the vocabulary: ids of other rows give zeros, and the sum over
// ranks is the whole.
//
// On cpu an id outside of the vocabulary is an error. On cuda nothing checks: the loader, which has
// the ids on the host, does.
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

struct EmbeddingOptions {
  double scale = 1.0;      // Gemma: sqrt(h)
  int64_t first_row = 0;   // of this rank's table
  int64_t vocabulary = 0;  // of all ranks' tables together; 0: this table is all of it
};

// table [rows, h]; ids [..] i64 or i32; y [.., h]
PHX_KERNEL(void, embedding,
           (const Tensor& table, const Tensor& ids, const EmbeddingOptions& options, Tensor& y))

// dy [.., h]; dtable [rows, h] sink, every row of it: with beta 0 rows that no id names become 0.
// The gradients of one row are added in the order of the ids, in acc_dtype, and rounded once:
// `workspace` is where the ids are sorted.
PHX_KERNEL(void, embedding_backward,
           (const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options, Tensor& workspace,
            const Sink& dtable))

// Bytes, as u8 [n].
Shape embedding_workspace(const Tensor& ids, int64_t rows);

// The common front: makes the workspace, then dispatches.
void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options,
                        const Sink& dtable);

// On cuda the workspace holds four arrays of a u32 per id, then this many bytes for the sort
// itself, whose need depends on the GPU; the kernel checks that it is enough.
constexpr int64_t embedding_sort_bytes(int64_t ids) { return 16 * ids + (int64_t{1} << 20); }

}  // namespace phx::kernels
