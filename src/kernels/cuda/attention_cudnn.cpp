// Attention by cuDNN 9, through cudnn-frontend. This is the one file that includes its headers.
//
// A graph is built once for a problem (shapes, strides, options) and kept with the rank's Runtime.
// Building takes a second or so and happens while the workspace is asked for, so in the first step.
// Packed sequences are a batch of as many, each as long as the longest, whose lengths and first
// elements are read from the device: a graph serves every batch of that count and that maximum.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING  // cuDNN is opened at first use
#define CUDNN_FRONTEND_SKIP_JSON_LIB           // graphs are never written to files
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "phalanx/base/log.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/library.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_trust.h"
#include "phalanx/kernels/cuda/packed_index.h"

// What the frontend's functions look into; set below, before any of them is called.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace phx::kernels::cuda {

namespace {

namespace fe = cudnn_frontend;
using FeTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr size_t kOldest = 91400;  // 9.14: what the graphs below were written for

enum Uid : int64_t { kQ = 1, kK, kV, kO, kStats, kDo, kDq, kDk, kDv };
static_assert(kDv == kMaxPackedTensors);
// Of packed sequences: kBegins + uid, where each begins in that tensor.
enum PackedUid : int64_t { kBegins = 100, kQueryLengths = 200, kKeyLengths };

void check(fe::error_t status, const char* what) {
  PHX_CHECK(status.is_good(), "cuDNN: ", what, " failed: ", status.get_message());
}

void check(cudnnStatus_t status, const char* what) {
  PHX_CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", what,
            " failed: ", fe::detail::get_error_string(status));
}

void open_cudnn() {
  static std::once_flag once;
  std::call_once(once, [] {
    static phx::cuda::Library cudnn("cuDNN", {"libcudnn.so.9", "libcudnn.so"});
    // The frontend asks a shared CUDA runtime for device properties, though ours is linked in. It
    // opens it by name, and what is open already is found by that (comm/process_environment.cpp).
    // Programs that did not set the name before they had threads (tests, benchmarks) get it here.
    static phx::cuda::Library runtime("the CUDA runtime", {"libcudart.so.13", "libcudart.so"});
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.path().c_str(), /*overwrite=*/0);
    fe::cudnn_dlhandle =
        dlopen(cudnn.path().c_str(), RTLD_NOW | RTLD_LOCAL);  // the one just opened
    PHX_CHECK(fe::cudnn_dlhandle != nullptr, "cuDNN: ", cudnn.path(), " cannot be opened again");
    const size_t version = fe::detail::get_backend_version();
    PHX_CHECK(version >= kOldest, "cuDNN ", version / 10000, ".", version / 100 % 100,
              " was found at ", cudnn.path(), "; attention needs 9.14 or newer");
  });
}

// What a graph depends on. Pointers are given at each execution.
using Key = std::array<int64_t, 37>;

void put(Key& key, size_t& at, std::initializer_list<int64_t> values) {
  for (int64_t value : values) key.at(at++) = value;
}

Key key_of(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass,
           std::initializer_list<const HeadView*> views) {
  Key key{};
  size_t at = 0;
  put(key, at,
      {int64_t(pass), int64_t(in.q.dtype()), in.q.s, in.q.b, in.q.n, in.k.n, in.q.d, in.v.d,
       int64_t(options.causal), options.window_left, in.packed() ? in.num_seqs() : 0, in.max_seqlen,
       int64_t(std::bit_cast<uint64_t>(attention_scale(in, options)))});
  for (const HeadView* x : views) put(key, at, {x->stride_s, x->stride_b, x->stride_n});
  return key;
}

struct Plan {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
  bool tested = false;
  int tests = 0;
};

// The tensors of one graph.
class GraphTensors {
 public:
  GraphTensors(fe::graph::Graph& graph, const AttentionInputs& in) : graph_(graph), in_(in) {}

  FeTensor input(const HeadView& x, int64_t uid) { return graph_.tensor(heads(x, uid)); }
  FeTensor stats() { return graph_.tensor(stats_of(in_.q)); }
  void output(const FeTensor& tensor, const HeadView& x, int64_t uid) {
    take_over(*tensor, heads(x, uid));
  }
  void stats_output(const FeTensor& tensor) { take_over(*tensor, stats_of(in_.q)); }

  // The lengths of packed sequences, for either pass.
  template <class Attributes>
  void set_lengths(Attributes& attributes) {
    if (!in_.packed()) return;
    attributes.set_padding_mask(true)
        .set_seq_len_q(numbers(in_.num_seqs(), fe::DataType_t::INT32, kQueryLengths))
        .set_seq_len_kv(numbers(in_.num_seqs(), fe::DataType_t::INT32, kKeyLengths));
  }

 private:
  using Attributes = fe::graph::Tensor_attributes;

  FeTensor numbers(int64_t count, fe::DataType_t type, int64_t uid) {
    return graph_.tensor(Attributes()
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_uid(uid)
                             .set_data_type(type));
  }
  void let_begin(Attributes& tensor, int64_t uid) {
    if (in_.packed())
      tensor.set_ragged_offset(numbers(in_.num_seqs() + 1, fe::DataType_t::INT64, kBegins + uid));
  }

  Attributes heads(const HeadView& x, int64_t uid) {
    const int64_t s = in_.packed() ? in_.max_seqlen : x.s;
    Attributes tensor;
    tensor.set_dim({in_.num_seqs(), x.n, s, x.d})
        .set_stride({in_.packed() ? s * x.stride_s : x.stride_b, x.stride_n, x.stride_s, 1})
        .set_uid(uid)
        .set_data_type(x.dtype() == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF);
    let_begin(tensor, uid);
    return tensor;
  }

  Attributes stats_of(const HeadView& q) {  // lse [b, n, s]
    Attributes tensor;
    tensor.set_dim({in_.num_seqs(), q.n, in_.max_queries(), 1})
        .set_stride({q.n * q.s, q.s, 1, 1})
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT);
    let_begin(tensor, kStats);
    return tensor;
  }

  // An output is made by the graph and takes over what `like` says.
  static void take_over(Attributes& tensor, Attributes like) {
    tensor.set_output(true)
        .set_dim(like.get_dim())
        .set_stride(like.get_stride())
        .set_uid(like.get_uid())
        .set_data_type(like.get_data_type())
        .set_ragged_offset(like.get_ragged_offset());
  }

  fe::graph::Graph& graph_;
  const AttentionInputs& in_;
};

// Causality and window, of either pass.
template <class Attributes>
void set_mask(Attributes& attributes, const AttentionOptions& options) {
  if (options.causal)
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  // cuDNN counts the query's own position: key j is seen from i where j + bound > i.
  if (options.window_left >= 0) attributes.set_diagonal_band_left_bound(options.window_left + 1);
}

template <class T>
void* address(const HeadView& x) {
  void* at = x.data<T>();
  PHX_CHECK(reinterpret_cast<uintptr_t>(at) % 16 == 0,
            "attention: cuDNN needs heads that begin at a multiple of 16 bytes");
  return at;
}
void* address(const HeadView& x) {
  return x.dtype() == DType::bf16 ? address<bf16>(x) : address<f16>(x);
}

class CudnnAttention {
 public:
  explicit CudnnAttention(Runtime& runtime) {
    open_cudnn();
    check(fe::detail::create_handle(&handle_), "cudnnCreate");
    check(fe::detail::set_stream(
              handle_, static_cast<cudaStream_t>(runtime.stream(StreamName::compute).native())),
          "cudnnSetStream");
  }
  ~CudnnAttention() {
    plans_.clear();  // before the handle
    (void)fe::detail::destroy_handle(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  Plan& forward(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o) {
    auto& plan = plans_[key_of(in, options, AttentionPass::forward, {&in.q, &in.k, &in.v, &o})];
    if (plan) return *plan;
    auto made = new_plan(in.q.dtype());
    auto attributes = fe::graph::SDPA_attributes()
                          .set_name("attention")
                          .set_generate_stats(true)
                          .set_attn_scale(scale(in, options));
    GraphTensors tensors(made->graph, in);
    set_mask(attributes, options);
    tensors.set_lengths(attributes);
    const auto [out, stats] = made->graph.sdpa(tensors.input(in.q, kQ), tensors.input(in.k, kK),
                                               tensors.input(in.v, kV), attributes);
    tensors.output(out, o, kO);
    tensors.stats_output(stats);
    build(*made);
    plan = std::move(made);
    return *plan;
  }

  Plan& backward(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
                 const HeadView& d_o, const AttentionGradients& grads) {
    auto& plan = plans_[key_of(in, options, AttentionPass::backward,
                               {&in.q, &in.k, &in.v, &o, &d_o, &grads.dq, &grads.dk, &grads.dv})];
    if (plan) return *plan;
    auto made = new_plan(in.q.dtype());
    auto attributes = fe::graph::SDPA_backward_attributes()
                          .set_name("attention_backward")
                          .set_attn_scale(scale(in, options))
                          .set_deterministic_algorithm(in.q.device().runtime().deterministic());
    GraphTensors tensors(made->graph, in);
    set_mask(attributes, options);
    tensors.set_lengths(attributes);
    // Else cuDNN would make room for as many of the longest. Before 9.19 (seen with 9.14.0) it is
    // wrong with the bound where value heads are narrower.
    if (in.packed() && (in.q.d == in.v.d || cudnn_version() >= 91900))
      attributes.set_max_total_seq_len_q(in.q.s).set_max_total_seq_len_kv(in.k.s);
    const auto [dq, dk, dv] = made->graph.sdpa_backward(
        tensors.input(in.q, kQ), tensors.input(in.k, kK), tensors.input(in.v, kV),
        tensors.input(o, kO), tensors.input(d_o, kDo), tensors.stats(), attributes);
    tensors.output(dq, grads.dq, kDq);
    tensors.output(dk, grads.dk, kDk);
    tensors.output(dv, grads.dv, kDv);
    build(*made);
    plan = std::move(made);
    return *plan;
  }

  using Views = std::initializer_list<std::pair<Uid, const HeadView*>>;

  // `room`: the workspace, or what is left of it.
  void run(Plan& plan, const AttentionInputs& in, const Views& views, const Tensor& lse,
           std::span<std::byte> room) {
    Pointers pointers{{kStats, lse.raw()}};
    for (const auto& [uid, view] : views) pointers[uid] = address(*view);
    if (in.packed()) {
      add_index(in, views, room.data(), pointers);
      room = room.subspan(size_t(packed_index_bytes(in.q.s)));
    }
    PHX_ASSERT(std::ssize(room) >= plan.workspace_bytes, "cuDNN's attention needs ",
               plan.workspace_bytes, " bytes of workspace and has ", room.size());
    check(plan.graph.execute(handle_, pointers, room.data()), "the execution of attention");
  }

  void plant_wrong_plans() {
    plans_.clear();
    planted_ = true;
  }

 private:
  using Pointers = std::unordered_map<int64_t, void*>;

  float scale(const AttentionInputs& in, const AttentionOptions& options) const {
    return float(attention_scale(in, options)) * (planted_ ? 1.5f : 1.f);
  }

  static void add_index(const AttentionInputs& in, const Views& views, void* at,
                        Pointers& pointers) {
    std::array<int64_t, kMaxPackedTensors> strides{};
    strides[kStats - 1] = 1;
    for (const auto& [uid, view] : views) strides[size_t(uid) - 1] = view->stride_s;
    const PackedIndex index = write_packed_index(in.cu_seqlens, strides, at);
    pointers[kQueryLengths] = pointers[kKeyLengths] = index.lengths;
    pointers[kBegins + kStats] = index.begins_of(kStats - 1);
    for (const auto& [uid, view] : views) pointers[kBegins + uid] = index.begins_of(int(uid) - 1);
  }

  // A node takes over the graph's types when it is added, so they are set first.
  static std::unique_ptr<Plan> new_plan(DType dtype) {
    auto plan = std::make_unique<Plan>();
    plan->graph
        .set_io_data_type(dtype == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    return plan;
  }

  void build(Plan& plan) {
    // The heuristic's first choice, never the winner of a timing: runs stay comparable.
    check(plan.graph.build(handle_, {fe::HeurMode_t::A}), "the making of a plan for attention");
    check(plan.graph.get_workspace_size(plan.workspace_bytes), "the size of attention's workspace");
  }

  cudnnHandle_t handle_ = nullptr;
  bool planted_ = false;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

CudnnAttention& cudnn_of(const AttentionInputs& in) {
  return in.q.device().runtime().extension<CudnnAttention>();
}

// What was planned, which is a little more than cuDNN needs. So packed batches of the same tokens
// ask for the same bytes whatever their sequences are, and a step's memory can be replayed.
int64_t planned_bytes(const AttentionInputs& in, AttentionPass pass, const Plan& plan) {
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
  PHX_CUDA_CHECK(cudaMemcpy2DAsync(address(to), bytes(to.stride_s), address(from),
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
bool is_right(Plan& plan, const AttentionInputs& in, const AttentionOptions& options,
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

int64_t cudnn_version() {
  open_cudnn();
  return int64_t(fe::detail::get_backend_version());
}

void plant_wrong_plans(Runtime& runtime) {
  runtime.extension<CudnnAttention>().plant_wrong_plans();
}

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
  Plan& plan = cudnn_of(in).backward(problem.in, options, problem.o, problem.d_o, problem.grads);
  return planned_bytes(in, kPass, plan);
}

void cudnn_attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
                     const HeadView& o, Tensor& lse) {
  CudnnAttention& cudnn = cudnn_of(in);
  Plan& plan = cudnn.forward(in, options, o);
  cudnn.run(plan, in, {{kQ, &in.q}, {kK, &in.k}, {kV, &in.v}, {kO, &o}}, lse, bytes_of(workspace));
  if (!is_right(plan, in, options, AttentionPass::forward,
                [&](AttentionTrust& trust) { return trust.test(in, options, o, lse); }))
    own_attention(in, options, o, lse);
}

void cudnn_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                              const HeadView& o, const Tensor& lse, const HeadView& d_o,
                              Tensor& workspace, const AttentionGradients& grads) {
  CudnnAttention& cudnn = cudnn_of(in);
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
  Plan* plan = nullptr;
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
