// Attention by cuDNN: its workspace, copies that packed gradients need, deterministic gradients in
// parts, and a test of every plan at its first use. attention_cudnn_graph.cpp builds the plans.
#include <algorithm>

#include "phalanx/base/log.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/cuda/attention_cudnn_graph.h"
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_trust.h"

namespace phx::kernels::cuda {

namespace {

using enum CudnnGraphs::Uid;

CudnnGraphs& cudnn_of(const AttentionInputs& in) { return cudnn_graphs(in.q.device().runtime()); }

// What was planned, which is a little more than cuDNN needs. So packed batches of the same tokens
// ask for the same bytes whatever their sequences are, and a step's memory can be replayed.
int64_t planned_bytes(const AttentionInputs& in, AttentionPass pass, const CudnnPlan& plan) {
  const int64_t ours =
      in.packed() ? packed_index_bytes(in.q.s) + packed_gradient_bytes(in, pass) : 0;
  return std::max(meta::cudnn_attention_workspace_bytes(in, pass), ours + plan.workspace_bytes);
}

std::span<std::byte> bytes_of(const Tensor& workspace) {
  if (!workspace.defined()) return {};
  return {static_cast<std::byte*>(workspace.raw()), size_t(workspace.bytes())};
}

// dk or dv where cuDNN is to write it: see packed_gradient_bytes.
HeadView compact(HeadView x) {
  x.offset = 0;
  x.stride_n = x.d;
  x.stride_s = x.stride_b = x.n * x.d;
  return x;
}
// A workspace is a storage of its own.
HeadView compact_at(const HeadView& x, const Tensor& workspace, int64_t offset_bytes) {
  HeadView result = compact(x);
  result.base = Tensor(workspace.storage(), offset_bytes, {x.s, 1, x.n * x.d}, x.dtype());
  return result;
}

void copy_tokens(const HeadView& from, const HeadView& to) {
  PHX_ASSERT(to.stride_n == to.d, "attention: the heads of a gradient should lie side by side");
  const auto bytes = [&](int64_t elements) { return size_t(elements * size_of(to.dtype())); };
  PHX_CUDA_CHECK(cudaMemcpy2DAsync(cudnn_address(to), bytes(to.stride_s), cudnn_address(from),
                                   bytes(from.stride_s), bytes(to.n * to.d), size_t(to.s),
                                   cudaMemcpyDeviceToDevice,
                                   static_cast<cudaStream_t>(to.device().compute_stream())));
}

// Before 9.19 (seen with 9.14.0) the sums over query heads that share packed key heads are wrong
// unless k and v lie as dk and dv do: then copies of them are read.
bool copies_keys(const AttentionInputs& in) {
  return packed_gradient_bytes(in, AttentionPass::backward) > 0 && cudnn_version() < 91900;
}

// Some sequences and key heads of a problem, with the query heads that use them.
struct Chunk {
  int64_t first_sequence, sequences, first_key_head, key_heads;
};
HeadView chunk_of(HeadView x, const Chunk& chunk, int64_t heads_a_key) {
  x.offset += chunk.first_sequence * x.stride_b + chunk.first_key_head * heads_a_key * x.stride_n;
  x.b = chunk.sequences;
  x.n = chunk.key_heads * heads_a_key;
  return x;
}

struct BackwardProblem {
  AttentionInputs in;
  HeadView o, d_o;
  AttentionGradients grads;

  BackwardProblem chunk(const Chunk& chunk) const {
    const int64_t group = in.q.n / in.k.n;
    BackwardProblem part = *this;
    for (HeadView* x : {&part.in.q, &part.o, &part.d_o, &part.grads.dq})
      *x = chunk_of(*x, chunk, group);
    for (HeadView* x : {&part.in.k, &part.in.v, &part.grads.dk, &part.grads.dv})
      *x = chunk_of(*x, chunk, 1);
    return part;
  }
  // lse [b, n, s]
  Tensor rows_of(const Tensor& lse, const Chunk& chunk) const {
    const int64_t group = in.q.n / in.k.n;
    return lse.reshape({in.q.b * in.q.n, in.q.s})
        .rows(chunk.first_sequence * in.q.n + chunk.first_key_head * group,
              chunk.sequences * chunk.key_heads * group);
  }
};

// As it is given to cuDNN at a time. All chunks are alike, so that one plan serves them.
AttentionChunk chunk_sizes(const AttentionInputs& in) {
  if (in.q.device().runtime().deterministic() && !in.packed()) return deterministic_chunk(in);
  return {in.q.b, in.k.n};
}

// What a plan computed is tested once; inputs that cannot tell (all zero, say) are tried a few
// times. A fault of the device is most likely the plan's. Where the test itself cannot be made (no
// memory left for it), the plan is used untested, with a word.
constexpr int kMostTests = 16;
template <class Test>
bool is_right(CudnnPlan& plan, const AttentionInputs& in, const AttentionOptions& options,
              AttentionPass pass, const Test& test) {
  AttentionTrust& trust = in.q.device().runtime().extension<AttentionTrust>();
  if (plan.tested || !trust.tests_plans()) return true;
  AttentionTrust::Verdict verdict;
  try {
    verdict = test(trust);
  } catch (const Error& error) {
    const auto stream = static_cast<cudaStream_t>(in.q.device().compute_stream());
    if (cudaStreamSynchronize(stream) == cudaSuccess) {
      (void)cudaGetLastError();
      plan.tested = true;
      log_warning(str_cat(attention_kind(in, options, pass).text(),
                          " by cuDNN is not tested: ", error.what()));
      return true;
    }
    throw_error(str_cat("cuDNN ", cudnn_version_text(cudnn_version()), " failed in ",
                        attention_kind(in, options, pass).text(), ": ", error.what(),
                        "\n  hint: install another version of cuDNN, or do without its attention: "
                        "--cudnn-attention off"));
  }
  plan.tested = verdict == AttentionTrust::Verdict::right || ++plan.tests == kMostTests;
  return verdict != AttentionTrust::Verdict::wrong;
}

}  // namespace

bool trusts_cudnn(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass) {
  return in.q.device().runtime().extension<AttentionTrust>().trusts(
      attention_kind(in, options, pass));
}

int64_t cudnn_attention_workspace_bytes(const AttentionInputs& in, const AttentionOptions& options,
                                        const HeadView& o) {
  return planned_bytes(in, AttentionPass::forward, cudnn_of(in).forward(in, options, o));
}

int64_t cudnn_attention_backward_workspace_bytes(const AttentionInputs& in,
                                                 const AttentionOptions& options, const HeadView& o,
                                                 const HeadView& d_o,
                                                 const AttentionGradients& grads) {
  constexpr AttentionPass kPass = AttentionPass::backward;
  const AttentionChunk sizes = chunk_sizes(in);
  BackwardProblem problem =
      BackwardProblem{in, o, d_o, grads}.chunk({0, sizes.sequences, 0, sizes.key_heads});
  if (packed_gradient_bytes(in, kPass) > 0) {
    problem.grads.dk = compact(grads.dk), problem.grads.dv = compact(grads.dv);
    if (copies_keys(in)) problem.in.k = compact(in.k), problem.in.v = compact(in.v);
  }
  CudnnPlan& plan =
      cudnn_of(in).backward(problem.in, options, problem.o, problem.d_o, problem.grads);
  return planned_bytes(in, kPass, plan);
}

void cudnn_attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
                     const HeadView& o, Tensor& lse) {
  CudnnGraphs& cudnn = cudnn_of(in);
  CudnnPlan& plan = cudnn.forward(in, options, o);
  cudnn.run(plan, in, {{kQ, &in.q}, {kK, &in.k}, {kV, &in.v}, {kO, &o}}, lse, bytes_of(workspace));
  if (!is_right(plan, in, options, AttentionPass::forward,
                [&](AttentionTrust& trust) { return trust.test(in, options, o, lse); }))
    own_attention(in, options, o, lse);
}

void cudnn_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                              const HeadView& o, const Tensor& lse, const HeadView& d_o,
                              Tensor& workspace, const AttentionGradients& grads) {
  CudnnGraphs& cudnn = cudnn_of(in);
  // Within packed QKV, dk and dv are made aside, two of four places; k and v have the other two.
  const int64_t aside = packed_gradient_bytes(in, AttentionPass::backward);
  BackwardProblem all{in, o, d_o, grads};
  if (aside > 0) {
    all.grads.dk = compact_at(grads.dk, workspace, 0);
    all.grads.dv = compact_at(grads.dv, workspace, aside / 4);
    if (copies_keys(in)) {
      all.in.k = compact_at(in.k, workspace, aside / 2);
      all.in.v = compact_at(in.v, workspace, aside / 4 * 3);
      copy_tokens(in.k, all.in.k);
      copy_tokens(in.v, all.in.v);
    }
  }
  const AttentionChunk sizes = chunk_sizes(in);
  CudnnPlan* plan = nullptr;
  for (int64_t sequence = 0; sequence < in.num_seqs(); sequence += sizes.sequences) {
    for (int64_t head = 0; head < in.k.n; head += sizes.key_heads) {
      const Chunk chunk{sequence, sizes.sequences, head, sizes.key_heads};
      const BackwardProblem part = in.packed() ? all : all.chunk(chunk);
      plan = &cudnn.backward(part.in, options, part.o, part.d_o, part.grads);
      cudnn.run(*plan, part.in,
                {{kQ, &part.in.q},
                 {kK, &part.in.k},
                 {kV, &part.in.v},
                 {kO, &part.o},
                 {kDo, &part.d_o},
                 {kDq, &part.grads.dq},
                 {kDk, &part.grads.dk},
                 {kDv, &part.grads.dv}},
                in.packed() ? lse : all.rows_of(lse, chunk),
                bytes_of(workspace).subspan(size_t(aside)));
    }
    if (in.packed()) break;  // one call serves all of them
  }
  if (aside > 0) {
    copy_tokens(all.grads.dk, grads.dk);
    copy_tokens(all.grads.dv, grads.dv);
  }
  if (!is_right(*plan, in, options, AttentionPass::backward, [&](AttentionTrust& trust) {
        return trust.test_backward(in, options, o, lse, d_o, grads);
      }))
    own_attention_backward(in, options, o, lse, d_o, workspace, grads);
}

}  // namespace phx::kernels::cuda
