// Attention by cuDNN 9, through cudnn-frontend. This is the one file that includes its headers.
//
// A graph is built once for a problem (shapes, strides, options) and kept with the rank's Runtime.
// Building takes a second or so and happens while the workspace is asked for, so in the first step.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING  // cuDNN is opened at first use
#define CUDNN_FRONTEND_SKIP_JSON_LIB           // graphs are never written to files
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/cuda/library.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention_own.h"

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
    // The frontend asks a shared CUDA runtime for device properties, though ours is linked in.
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
using Key = std::array<int64_t, 36>;

void put(Key& key, size_t& at, std::initializer_list<int64_t> values) {
  for (int64_t value : values) key.at(at++) = value;
}

Key key_of(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass,
           std::initializer_list<const HeadView*> views) {
  Key key{};
  size_t at = 0;
  put(key, at,
      {int64_t(pass), int64_t(in.q.dtype()), in.q.s, in.q.b, in.q.n, in.k.n, in.q.d,
       int64_t(options.causal), options.window_left,
       int64_t(std::bit_cast<uint64_t>(attention_scale(in, options)))});
  for (const HeadView* x : views) put(key, at, {x->stride_s, x->stride_b, x->stride_n});
  return key;
}

struct Plan {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
};

fe::graph::Tensor_attributes describe(const HeadView& x, int64_t uid) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_dim({x.b, x.n, x.s, x.d})
      .set_stride({x.stride_b, x.stride_n, x.stride_s, 1})
      .set_uid(uid)
      .set_data_type(x.dtype() == DType::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF);
  return tensor;
}

fe::graph::Tensor_attributes describe_stats(const HeadView& q) {  // lse [b, n, s]
  fe::graph::Tensor_attributes tensor;
  tensor.set_dim({q.b, q.n, q.s, 1})
      .set_stride({q.n * q.s, q.s, 1, 1})
      .set_uid(kStats)
      .set_data_type(fe::DataType_t::FLOAT);
  return tensor;
}

// An output takes over what `like` says.
void shape_output(const FeTensor& tensor, const fe::graph::Tensor_attributes& like) {
  tensor->set_output(true)
      .set_dim(like.get_dim())
      .set_stride(like.get_stride())
      .set_uid(like.get_uid())
      .set_data_type(like.get_data_type());
}

// Causality and window, of either pass.
template <class Attributes>
void set_mask(Attributes& attributes, const AttentionOptions& options) {
  if (options.causal)
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  // cuDNN counts the query's own position: key j is seen from i where j + bound > i.
  if (options.window_left >= 0) attributes.set_diagonal_band_left_bound(options.window_left + 1);
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
                          .set_attn_scale(float(attention_scale(in, options)));
    set_mask(attributes, options);
    fe::graph::Graph& graph = made->graph;
    const auto [out, stats] =
        graph.sdpa(graph.tensor(describe(in.q, kQ)), graph.tensor(describe(in.k, kK)),
                   graph.tensor(describe(in.v, kV)), attributes);
    shape_output(out, describe(o, kO));
    shape_output(stats, describe_stats(in.q));
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
                          .set_attn_scale(float(attention_scale(in, options)));
    set_mask(attributes, options);
    fe::graph::Graph& graph = made->graph;
    const auto [dq, dk, dv] = graph.sdpa_backward(
        graph.tensor(describe(in.q, kQ)), graph.tensor(describe(in.k, kK)),
        graph.tensor(describe(in.v, kV)), graph.tensor(describe(o, kO)),
        graph.tensor(describe(d_o, kDo)), graph.tensor(describe_stats(in.q)), attributes);
    shape_output(dq, describe(grads.dq, kDq));
    shape_output(dk, describe(grads.dk, kDk));
    shape_output(dv, describe(grads.dv, kDv));
    build(*made);
    plan = std::move(made);
    return *plan;
  }

  void run(Plan& plan, std::unordered_map<int64_t, void*> pointers, Tensor& workspace) {
    PHX_ASSERT((workspace.defined() ? workspace.bytes() : 0) >= plan.workspace_bytes,
               "cuDNN's attention needs ", plan.workspace_bytes, " bytes of workspace");
    check(plan.graph.execute(handle_, pointers, workspace.defined() ? workspace.raw() : nullptr),
          "the execution of attention");
  }

 private:
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
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

CudnnAttention& cudnn_of(const AttentionInputs& in) {
  return in.q.device().runtime().extension<CudnnAttention>();
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

}  // namespace

int64_t cudnn_attention_workspace_bytes(const AttentionInputs& in, const AttentionOptions& options,
                                        const HeadView& o) {
  return cudnn_of(in).forward(in, options, o).workspace_bytes;
}

int64_t cudnn_attention_backward_workspace_bytes(const AttentionInputs& in,
                                                 const AttentionOptions& options, const HeadView& o,
                                                 const HeadView& d_o,
                                                 const AttentionGradients& grads) {
  return cudnn_of(in).backward(in, options, o, d_o, grads).workspace_bytes;
}

void cudnn_attention(const AttentionInputs& in, const AttentionOptions& options, Tensor& workspace,
                     const HeadView& o, Tensor& lse) {
  CudnnAttention& cudnn = cudnn_of(in);
  cudnn.run(cudnn.forward(in, options, o),
            {{kQ, address(in.q)},
             {kK, address(in.k)},
             {kV, address(in.v)},
             {kO, address(o)},
             {kStats, lse.raw()}},
            workspace);
}

void cudnn_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                              const HeadView& o, const Tensor& lse, const HeadView& d_o,
                              Tensor& workspace, const AttentionGradients& grads) {
  CudnnAttention& cudnn = cudnn_of(in);
  cudnn.run(cudnn.backward(in, options, o, d_o, grads),
            {{kQ, address(in.q)},
             {kK, address(in.k)},
             {kV, address(in.v)},
             {kO, address(o)},
             {kDo, address(d_o)},
             {kStats, lse.raw()},
             {kDq, address(grads.dq)},
             {kDk, address(grads.dk)},
             {kDv, address(grads.dv)}},
            workspace);
}

}  // namespace phx::kernels::cuda
