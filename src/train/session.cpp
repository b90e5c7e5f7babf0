#include "phalanx/train/session.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/kernels/router.h"
#include "phalanx/parallel/data/unit.h"
#include "phalanx/train/frozen_modules.h"
#include "phalanx/train/recompute_modules.h"

namespace phx {

DType model_dtype(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return DType::f64;
    case Precision::fp32:
      return DType::f32;
    case Precision::bf16:
      return DType::bf16;
    case Precision::fp16:
      return DType::f16;
  }
  return DType::f32;
}

RecomputePolicy recompute_policy(const TrainConfig& config) {
  RecomputePolicy policy;
  policy.offloaded_layers = config.cpu_offloading_num_layers;
  policy.mlp_pieces = config.mlp_chunks_for_training;
  policy.keep_attention = config.recompute_keep_attention;
  if (!config.recompute_granularity) return policy;
  if (*config.recompute_granularity == RecomputeGranularity::full) {
    policy.layers = config.recompute_method == RecomputeMethod::block
                        ? RecomputePolicy::Layers::block
                        : RecomputePolicy::Layers::uniform;
    policy.num_layers = config.recompute_num_layers.value_or(1);
  }
  const auto has = [&](const char* module) {
    return std::ranges::find(config.recompute_modules, module) != config.recompute_modules.end();
  };
  policy.core_attention = has("core_attn") || config.recompute_core_attention();
  policy.parts = recomputed_parts(config.recompute_modules);
  policy.up_projections = has("mla_up_proj");
  policy.expert_activation = has("moe_act");
  policy.shared_expert = has("shared_experts");
  policy.norms = has("layernorm");
  policy.activation = has("activation");
  return policy;
}

FlopsShape flops_shape(const TransformerConfig& config) {
  FlopsShape shape{.num_layers = config.num_layers,
                   .hidden = config.hidden_size,
                   .ffn_hidden = config.ffn_size(),
                   .num_heads = config.num_attention_heads,
                   .num_groups = config.query_groups(),
                   .head_size = config.head_dim(),
                   .padded_vocab = config.padded_vocab(),
                   .swiglu = config.swiglu,
                   .num_mtp_layers = config.mtp_num_layers};
  if (config.latent.any())
    shape.latent = {.q_rank = config.latent.q_lora_rank.value_or(0),
                    .kv_rank = config.latent.kv_lora_rank,
                    .plain = config.latent.qk_head_dim,
                    .turned = config.latent.qk_pos_emb_head_dim,
                    .value = config.latent.v_head_dim};
  if (!config.moe.any()) return shape;
  for (int64_t layer = 0; layer < config.all_layers(); ++layer)
    if (config.has_experts(layer)) ++shape.num_moe_layers;
  shape.expert_ffn_hidden = config.expert_size();
  shape.experts_per_token = config.moe.moe_router_topk;
  shape.shared_expert_ffn_hidden = config.moe.moe_shared_expert_intermediate_size.value_or(0);
  return shape;
}

namespace {

std::function<bool(const std::string&)> decays_beside_matrices(const OptimizerConfig& config) {
  if (!config.apply_wd_to_qk_layernorm) return {};
  return [](const std::string& name) {
    return name.ends_with("q_layernorm.weight") || name.ends_with("k_layernorm.weight");
  };
}

BatchLoader loader(const RunConfig& config, std::shared_ptr<const SampleSource> source,
                   Device device, const Mesh& mesh, const Placement& placement) {
  const int64_t data_ranks = mesh.sizes().dp;
  const bool reads = mesh.first_stage() || mesh.last_stage() || source->parts().any() ||
                     placement.mtp_stage() == mesh.pp_rank();
  return BatchLoader(
      std::move(source),
      {.micro_batch = config.train.micro_batch_size,
       .num_micro_batches = config.train.num_micro_batches(data_ranks),
       .seq_length = config.model.seq_length,
       .data_rank = mesh.dp_rank(),
       .data_ranks = data_ranks,
       .ahead = config.model.mtp_num_layers,
       .reads = reads,
       .cut = {.ranks = mesh.sizes().cp, .rank = mesh.cp_rank()}},
      vocabulary_of(config.model), device,
      {.type = config.data.dataloader_type, .data_sharding = config.data.data_sharding});
}

Layout layout_on(Device device, const RunConfig& run, const Sources& sources, const Mesh& mesh) {
  if (device.target() == DeviceKind::cuda) {
    const Problems wrong =
        context_device_problems(run.model, run.parallel, sources.first().parts().cu_seqlens);
    PHX_CHECK(wrong.empty(), "this layout cannot be trained\n", format_problems(wrong));
  }
  return make_layout(run.layout(), mesh.size());
}

ContextParallel context_parallel(const RunConfig& run, const Mesh& mesh) {
  ContextParallel context{.group = mesh.cp(),
                          .inner = mesh.cp_inner(),
                          .outer = mesh.cp_outer(),
                          .comm = context_comms(run.parallel.cp_comm_type)};
  const int64_t neighbours = neighbours_that_exchange_heads(run.parallel);
  if (neighbours > 1 && neighbours == mesh.sizes().cp) context.inner = mesh.cp();  // no ring
  return context;
}

std::vector<std::unique_ptr<Model>> make_chunks(const RunConfig& run, const Layout& layout,
                                                const Mesh& mesh) {
  const ModelRanks ranks{.tp = {.group = mesh.tp(),
                                .sequence = run.parallel.sequence_parallel,
                                .overlap = run.parallel.tp_comm_overlap},
                         .key_sharers = mesh.key_sharers(),
                         .experts = {.group = mesh.dispatch(),
                                     .ep = mesh.expert_sizes().ep,
                                     .tp = mesh.expert_sizes().tp,
                                     .tokens = mesh.tp_cp()},
                         .context = context_parallel(run, mesh)};
  using Ahead = ModelPart::Ahead;
  std::vector<std::unique_ptr<Model>> chunks;
  const auto ahead = [&](const ChunkPlacement& chunk) {
    if (chunk.num_mtp_layers > 0) return Ahead::here;
    const bool behind = layout.placement.behind_mtp(mesh.pp_rank(), int(chunks.size()));
    return behind ? Ahead::earlier : Ahead::later;
  };
  for (const ChunkPlacement& chunk : layout.placement.ranks.at(size_t(mesh.pp_rank())))
    chunks.push_back(run.family(run.model, {.recompute = recompute_policy(run.train),
                                            .ranks = ranks,
                                            .part = {.first_layer = chunk.first_layer,
                                                     .num_layers = chunk.num_layers,
                                                     .begin = chunk.has_embedding,
                                                     .end = chunk.has_loss,
                                                     .ahead = ahead(chunk)},
                                            .loss = run.loss()}));
  for (const auto& chunk : chunks)
    PHX_CHECK(mesh.sizes().cp == 1 || chunk->takes_context_parallel(),
              "this layout cannot be trained\n",
              format_problems({needs_whole_sequences(run.parallel)}));
  return chunks;
}

std::vector<Module*> modules_of(const std::vector<std::unique_ptr<Model>>& chunks) {
  std::vector<Module*> modules;
  for (const auto& chunk : chunks) modules.push_back(chunk.get());
  return modules;
}

std::vector<Model*> models_of(const std::vector<std::unique_ptr<Model>>& chunks) {
  std::vector<Model*> models;
  for (const auto& chunk : chunks) models.push_back(chunk.get());
  return models;
}

// Megatron's: large enough that a message's latency does not count.
int64_t bucket_elements(const ParallelConfig& parallel, int64_t data_ranks) {
  if (!parallel.overlap_grad_reduce || parallel.shards_by_unit()) return 0;
  return parallel.ddp_bucket_size.value_or(std::max<int64_t>(40'000'000, 1'000'000 * data_ranks));
}

BucketCut bucket_cut(const Communicator* shards, const Communicator* copies, bool owners) {
  BucketCut cut;
  if (shards != nullptr) cut = {.ranks = shards->size(), .rank = shards->rank()};
  if (owners && copies != nullptr) {
    cut.owners = copies->size();
    cut.owner = copies->rank();
  }
  return cut;
}

DataRanks data_ranks(const RunConfig& run, const Mesh& mesh) {
  if (run.parallel.sharding() == Sharding::no_shard)
    return {.shards = {.dense = mesh.data(Grid::dense), .expert = mesh.data(Grid::expert)},
            .copies = {}};
  return {.shards = {.dense = mesh.shards(Grid::dense), .expert = mesh.shards(Grid::expert)},
          .copies = {.dense = mesh.shard_copies(Grid::dense),
                     .expert = mesh.shard_copies(Grid::expert)}};
}

StoreOptions store_options(const RunConfig& run, const Mesh& mesh) {
  const int64_t data_ranks = mesh.sizes().dp;
  const Sharding sharding = run.parallel.sharding();
  const std::vector<std::string>& frozen = run.train.freeze_modules;
  StoreOptions options{
      .dtype = model_dtype(run.train.precision()),
      .seed = uint64_t(run.train.seed),
      .only = [frozen](const std::string& name) { return !is_frozen(frozen, name); },
      .also_decays = decays_beside_matrices(run.optim),
      .reduction_class =
          [&mesh](const Parameter& p) {
            const Ownership ownership = mesh.ownership_of(p.axes());
            if (!ownership.repeated.has(Axis::tp)) return 0;
            return ownership.summed_after.has(Axis::tp) ? 2 : 1;
          },
      .decoupled = run.optim.decoupled_lr ? OptimizerConfig::is_decoupled : nullptr,
      .bucket_elements = bucket_elements(run.parallel, data_ranks),
      .unit = run.parallel.shards_by_unit() ? unit_of : nullptr,
      .shard_weights = sharding == Sharding::optim_grads_params,
      .shard_gradients = run.parallel.shards_by_unit()};
  if (sharding >= Sharding::optim) {
    const bool owners = run.parallel.outer_dp_sharding_strategy == OuterSharding::optim;
    options.cut = bucket_cut(mesh.shards(Grid::dense), mesh.shard_copies(Grid::dense), owners);
    options.expert_cut =
        bucket_cut(mesh.shards(Grid::expert), mesh.shard_copies(Grid::expert), owners);
  }
  if (run.parallel.grad_reduce_in_bf16 || run.optim.main_grads_dtype == StateDType::bf16)
    options.gradients_in = DType::bf16;
  return options;
}

// Every rank has all of its frozen weights, whatever data-parallel ranks divide.
StoreOptions frozen_options(const RunConfig& run) {
  return {.dtype = model_dtype(run.train.precision()),
          .seed = uint64_t(run.train.seed),
          .gradients = false,
          .only = [frozen = run.train.freeze_modules](const std::string& name) {
            return is_frozen(frozen, name);
          }};
}

// Samples of packed sequences lie in one row.
MicroBatchShape micro_batch_shape(const RunConfig& run, const Sources& sources) {
  const bool packed = sources.first().parts().cu_seqlens;
  const int64_t b = run.train.micro_batch_size, s = run.model.seq_length;
  return {
      .s = packed ? s * b : s, .b = packed ? 1 : b, .dtype = model_dtype(run.train.precision())};
}

TallyOptions tally_options(const TransformerConfig& model) {
  if (!model.moe.any()) return {};
  return {.layers = model.all_layers(),
          .width = kernels::RouterTally::width(*model.moe.num_experts),
          .at_end_of_step = model.moe.moe_router_enable_expert_bias ||
                            model.moe.coefficient("global_aux_loss") != 0};
}

const Mesh& one_rank() {
  static const Mesh mesh;  // holds nothing: the mesh of a run that talks to nobody
  return mesh;
}

}  // namespace

Session::Session(const RunConfig& run, Device device) : Session(run, Sources(run), device) {}

Session::Session(const RunConfig& run, const Sources& sources, Device device)
    : Session(run, sources, device, one_rank()) {}

Session::Session(const RunConfig& run, const Sources& sources, Device device, const Mesh& ranks)
    : config(run),
      mesh(ranks),
      layout(layout_on(device, config, sources, mesh)),
      batch_schedule(config.train.batch_schedule(config.model.seq_length, mesh.sizes().dp)),
      chunks(make_chunks(config, layout, mesh)),
      store(modules_of(chunks), device, store_options(config, mesh)),
      frozen(modules_of(chunks), device, frozen_options(config)),
      buffers(modules_of(chunks), device,
              {.dtype = acc_dtype(store.weights().dtype()), .buffers = true}),
      data_parallel(
          store, data_ranks(run, mesh),
          {.sharding = run.parallel.sharding(),
           .overlap_reduce = run.parallel.overlap_grad_reduce,
           .overlap_gather = run.parallel.overlap_param_gather,
           .gather = {.ahead_elements = run.parallel.suggested_communication_unit_size.value_or(0),
                      .keep_between_uses = run.parallel.torch_fsdp2_no_reshard_after_forward}}),
      optimizer(store, run.optim, data_parallel.owned(), uint64_t(run.train.seed),
                run.catalogue.optimizers),
      stage(models_of(chunks), micro_batch_shape(config, sources), device),
      step({stage, store, data_parallel, optimizer, mesh, layout}, run.optim,
           uint64_t(run.train.seed),
           {.average = run.train.loss_average,
            .most_micro_batches = run.train.num_micro_batches(mesh.sizes().dp),
            .means = run.model.moe.any(),
            .evaluates_micro_batches =
                run.train.loss_average == LossAverage::micro_batch && run.sft.sft,
            .ahead = run.model.mtp_num_layers},
           tally_options(run.model)),
      train_batches(loader(run, sources.train ? sources.train : sources.valid, device, mesh,
                           layout.placement)) {
  device.runtime().allocator().use_arena(run.train.arena);
  for (const auto& chunk : chunks)
    chunk->prepare(device, store.weights().dtype(), run.model.seq_length,
                   run.train.micro_batch_size);
  const auto describe = [&](const std::shared_ptr<const SampleSource>& source) {
    if (source) data_description += (data_description.empty() ? "" : ", ") + source->description();
  };
  describe(sources.train);
  describe(sources.valid);
  samples = sources.train ? sources.train : sources.valid;
  if (sources.valid)
    valid_batches.emplace(loader(run, sources.valid, device, mesh, layout.placement));
  if (sources.test) test_batches.emplace(loader(run, sources.test, device, mesh, layout.placement));
}

namespace {

int64_t micro_batches_at(const Session& session, int64_t consumed) {
  const BatchShape& shape = session.train_batches.shape();
  return session.batch_schedule.size_at(consumed) / (shape.micro_batch * shape.data_ranks);
}

}  // namespace

void Session::load_batch(int64_t consumed) {
  train_batches.load(consumed, micro_batches_at(*this, consumed));
}

std::exception_ptr Session::try_load_batch(int64_t consumed) {
  return train_batches.try_load(consumed, micro_batches_at(*this, consumed));
}

}  // namespace phx
