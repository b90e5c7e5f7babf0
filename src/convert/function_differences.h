// Whether two configs describe the same function.
#pragma once

#include <string>
#include <vector>

#include "phalanx/transformer/transformer_config.h"

namespace phx {

// What differs in the function that two configs describe, "--rotary-base: 10000 and 500000"; fields
// that only training reads (dropout, initial weights, sequence length) do not count, nor do two
// ways of saying the same.
std::vector<std::string> function_differences(const TransformerConfig& a,
                                              const TransformerConfig& b);

}  // namespace phx
