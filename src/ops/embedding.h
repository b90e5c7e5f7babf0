// Rows of a table by index. Learned positions are a second embedding whose result is added.
#pragma once

#include "phalanx/core/tensor.h"
#include "phalanx/kernels/embedding.h"

namespace phx {

using kernels::EmbeddingOptions;

// table [rows, h]; ids [s, b] (any shape) of i64 or i32 -> [s, b, h]
Tensor embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options = {});

}  // namespace phx
