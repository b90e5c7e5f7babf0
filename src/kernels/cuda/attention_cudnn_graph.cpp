// The graphs of cuDNN's attention. This is the one file that includes cudnn-frontend's headers.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING  // cuDNN is opened at first use
#define CUDNN_FRONTEND_SKIP_JSON_LIB           // graphs are never written to files
#include "phalanx/kernels/cuda/attention_cudnn_graph.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "phalanx/core/cuda/library.h"
#include "phalanx/kernels/cuda/attention_own.h"
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

using enum CudnnGraphs::Uid;
static_assert(kDv == kMaxPackedTensors);
// Of packed sequences: kBegins + uid, where each begins in that tensor.
constexpr int64_t kBegins = 100, kQueryLengths = 200, kKeyLengths = 201;

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
    // Programs that have not called prepare_process (tests, benchmarks) get the name here; in all
    // others the environment stays as it is.
    static phx::cuda::Library runtime("the CUDA runtime", {"libcudart.so.13", "libcudart.so"});
    constexpr const char* kName = "CUDNN_FRONTEND_CUDART_LIB_NAME";
    if (std::getenv(kName) == nullptr) setenv(kName, runtime.path().c_str(), /*overwrite=*/0);
    fe::cudnn_dlhandle =
        dlopen(cudnn.path().c_str(), RTLD_NOW | RTLD_LOCAL);  // the one just opened
    PHX_CHECK(fe::cudnn_dlhandle != nullptr, "cuDNN: ", cudnn.path(), " cannot be opened again");
    const size_t version = fe::detail::get_backend_version();
    PHX_CHECK(version >= kOldest, "cuDNN ", version / 10000, ".", version / 100 % 100,
              " was found at ", cudnn.path(), "; attention needs 9.14 or newer");
  });
}

// What a graph depends on. Pointers are given at each execution.
using Key = std::array<int64_t, 38>;

void put(Key& key, size_t& at, std::initializer_list<int64_t> values) {
  for (int64_t value : values) key.at(at++) = value;
}

Key key_of(const AttentionInputs& in, const AttentionOptions& options, AttentionPass pass,
           std::initializer_list<const HeadView*> views) {
  Key key{};
  size_t at = 0;
  put(key, at,
      {int64_t(pass), int64_t(in.q.dtype()), in.q.s, in.k.s, in.q.b, in.q.n, in.k.n, in.q.d, in.v.d,
       int64_t(options.causal), options.window_left, in.packed() ? in.num_seqs() : 0, in.max_seqlen,
       int64_t(std::bit_cast<uint64_t>(attention_scale(in, options)))});
  for (const HeadView* x : views) put(key, at, {x->stride_s, x->stride_b, x->stride_n});
  return key;
}

struct Plan : CudnnPlan {
  fe::graph::Graph graph;
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

class CudnnAttention final : public CudnnGraphs {
 public:
  explicit CudnnAttention(Runtime& runtime) {
    open_cudnn();
    check(fe::detail::create_handle(&handle_), "cudnnCreate");
    check(fe::detail::set_stream(
              handle_, static_cast<cudaStream_t>(runtime.stream(StreamName::compute).native())),
          "cudnnSetStream");
  }
  ~CudnnAttention() override {
    plans_.clear();  // before the handle
    (void)fe::detail::destroy_handle(handle_);
  }
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  Plan& forward(const AttentionInputs& in, const AttentionOptions& options,
                const HeadView& o) override {
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
                 const HeadView& d_o, const AttentionGradients& grads) override {
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

  void run(CudnnPlan& plan, const AttentionInputs& in, const Views& views, const Tensor& lse,
           std::span<std::byte> room) override {
    Pointers pointers{{kStats, lse.raw()}};
    for (const auto& [uid, view] : views) pointers[uid] = cudnn_address(*view);
    if (in.packed()) {
      add_index(in, views, room.data(), pointers);
      room = room.subspan(size_t(packed_index_bytes(in.q.s)));
    }
    PHX_ASSERT(std::ssize(room) >= plan.workspace_bytes, "cuDNN's attention needs ",
               plan.workspace_bytes, " bytes of workspace and has ", room.size());
    check(static_cast<Plan&>(plan).graph.execute(handle_, pointers, room.data()),
          "the execution of attention");
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

}  // namespace

CudnnGraphs& cudnn_graphs(Runtime& runtime) { return runtime.extension<CudnnAttention>(); }

void* cudnn_address(const HeadView& x) {
  return x.dtype() == DType::bf16 ? address<bf16>(x) : address<f16>(x);
}

int64_t cudnn_version() {
  open_cudnn();
  return int64_t(fe::detail::get_backend_version());
}

void plant_wrong_plans(Runtime& runtime) {
  runtime.extension<CudnnAttention>().plant_wrong_plans();
}

}  // namespace phx::kernels::cuda
