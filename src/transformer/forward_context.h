// What a forward needs beside its input: where in the global run these tokens stand (randomness is
// a function of that), and for generation the cache of earlier keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "phalanx/core/sample_place.h"
#include "phalanx/core/tensor.h"
#include "phalanx/ops/attention.h"
#include "phalanx/parallel/context/sequence_cut.h"

namespace phx {

// Keys (rotated) and values of the tokens so far, one layer: [length, b, g * d] and [length, b, g *
// dv].
struct LayerCache {
  Tensor keys, values;
};

struct KvCache {
  std::vector<LayerCache> layers;
  int64_t length = 0;  // tokens already in it
};

struct ForwardContext {
  uint64_t seed = 0;
  int64_t step = 0;            // of training, part of every random key
  SamplePlace samples = {};    // of the micro-batch
  int64_t first_position = 0;  // of the sequence's first token
  Tensor positions = {};       // i32 [s, b] of every token; undefined: they count up from the first
  PackedSequences packed = {};  // of a row [t, 1] of several sequences; undefined: s is one
  // Which rows of every sequence a rank of context parallelism has; lengths of `packed` are those
  // of all ranks together.
  SequenceCut cut = {};
  bool causal = true;  // a token sees those before it only; else all of its sequence
  // [1] acc: loss_scale n_k / N, n_k tokens of the micro-batch counting: with it a mean over the
  // micro-batch (a loss of the router's) enters the gradients. Undefined: there are none.
  Tensor mean_scale = {};
  bool training = true;  // false: no dropout
  // f64 [layers, RouterTally::width]: what routers count; undefined: nothing is counted.
  Tensor router_tally = {};
  // f64 [K]: to which the sum of the losses of each token ahead is added; undefined: they are not
  // wanted.
  Tensor ahead_tally = {};
  // Blank inputs, before the first step, so that kernels are loaded: tokens go to all experts in
  // turn, since a router sends equal tokens to the same few.
  bool rehearsal = false;
  KvCache* cache = nullptr;  // generation only
  // Of a layer that is computed again in the backward, where it keeps what attention found.
  std::shared_ptr<KeptAttention> kept_attention = {};
};

}  // namespace phx
