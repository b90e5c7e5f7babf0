// How weights are updated: the optimizer, the learning rate over time, weight decay, clipping, and
// the scaling of the loss in fp16. The lengths of schedules come in iterations or in samples, after
// the run's own length (TrainConfig::train_iters or train_samples).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/option_traits.h"

namespace phx {

struct Rule;

enum class WsdDecayStyle { exponential, linear, cosine, minus_sqrt };
constexpr auto option_names(WsdDecayStyle) {
  return std::array{"exponential", "linear", "cosine", "minus_sqrt"};
}

enum class WeightDecayStyle { constant, linear, cosine };
constexpr auto option_names(WeightDecayStyle) { return std::array{"constant", "linear", "cosine"}; }

// How main gradients and moments are kept.
enum class StateDType { fp32, bf16 };
constexpr auto option_names(StateDType) { return std::array{"fp32", "bf16"}; }

struct OptimizerConfig {
  std::string optimizer = "adam";  // a name of the catalogue (optim/update_rule.h)
  std::optional<double> lr;
  double min_lr = 0.0;
  std::optional<double> decoupled_lr;      // of the word embedding and the output layer
  std::optional<double> decoupled_min_lr;  // likewise; min_lr if unset
  std::string lr_decay_style = "linear";   // likewise (optim/lr_schedule.h)
  std::optional<int64_t> lr_decay_iters;
  std::optional<int64_t> lr_decay_samples;
  int64_t lr_warmup_iters = 0;
  int64_t lr_warmup_samples = 0;
  std::optional<double> lr_warmup_fraction;
  double lr_warmup_init = 0.0;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::exponential;
  std::optional<int64_t> lr_wsd_decay_iters;
  std::optional<int64_t> lr_wsd_decay_samples;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;

  double weight_decay = 0.01;
  std::optional<double> start_weight_decay;
  std::optional<double> end_weight_decay;
  WeightDecayStyle weight_decay_incr_style = WeightDecayStyle::constant;
  bool apply_wd_to_qk_layernorm = false;
  double clip_grad = 1.0;

  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;

  bool use_precision_aware_optimizer = false;
  StateDType main_grads_dtype = StateDType::fp32;
  StateDType exp_avg_dtype = StateDType::fp32;
  StateDType exp_avg_sq_dtype = StateDType::fp32;
  bool optimizer_cpu_offload = false;
  double optimizer_offload_fraction = 1.0;
  bool overlap_cpu_optimizer_d2h_h2d = false;
  // 64 MiB of bf16 are a millisecond on the bus: long against the start of a copy.
  int64_t optimizer_offload_chunk = int64_t{32} << 20;

  std::optional<double> loss_scale;
  double initial_loss_scale = 4294967296.0;  // 2^32
  double min_loss_scale = 1.0;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;

  bool dynamic_loss_scale() const { return !loss_scale; }
  // Exactly the two matrices of the vocabulary, as in Megatron: positions go with the rest.
  static bool is_decoupled(const std::string& parameter) {
    return parameter.ends_with("word_embeddings.weight") ||
           parameter.ends_with("output_layer.weight");
  }
  double first_weight_decay() const { return start_weight_decay.value_or(weight_decay); }
  double last_weight_decay() const { return end_weight_decay.value_or(weight_decay); }

  template <class Field>
  void each(Field&& field) {
    const char* later = "this optimizer is not in this build yet";
    field("optimizer", optimizer, "update rule",
          Refuses{{{"muon", later},
                   {"lion", later},
                   {"soap", later},
                   {"adaptive_muon", later},
                   {"dist_muon", later}}});
    field("lr", lr, "peak learning rate", Positive{}, Required{});
    field("min-lr", min_lr, "lowest learning rate", NotNegative{});
    field("decoupled-lr", decoupled_lr,
          "peak learning rate of the word embedding and the output layer", Positive{},
          DefaultIs{"--lr"});
    field("decoupled-min-lr", decoupled_min_lr, "lowest value of --decoupled-lr", NotNegative{},
          DefaultIs{"--min-lr"});
    field("lr-decay-style", lr_decay_style, "how the learning rate falls after warm-up");
    field("lr-decay-iters", lr_decay_iters, "iterations until --min-lr, warm-up included",
          Positive{}, DefaultIs{"--train-iters"});
    field("lr-decay-samples", lr_decay_samples, "the same in samples", Positive{},
          DefaultIs{"--train-samples"});
    field("lr-warmup-iters", lr_warmup_iters, "iterations of linear warm-up", NotNegative{});
    field("lr-warmup-samples", lr_warmup_samples, "the same in samples", NotNegative{});
    field("lr-warmup-fraction", lr_warmup_fraction, "warm-up as a fraction of the decay's length",
          FractionBelowOne{});
    field("lr-warmup-init", lr_warmup_init, "learning rate that warm-up starts from",
          NotNegative{});
    field("lr-wsd-decay-style", lr_wsd_decay_style, "WSD: shape of the final decay");
    field("lr-wsd-decay-iters", lr_wsd_decay_iters, "WSD: iterations of the final decay",
          Positive{});
    field("lr-wsd-decay-samples", lr_wsd_decay_samples, "the same in samples", Positive{});
    field("override-opt-param-scheduler", override_opt_param_scheduler,
          "on resume, use the schedules of the flags instead of the checkpoint's",
          Alias{"override-opt_param-scheduler"}, Alias{"override-lr-scheduler"});
    field("use-checkpoint-opt-param-scheduler", use_checkpoint_opt_param_scheduler,
          "on resume, use the checkpoint's schedules instead of those of the flags",
          Alias{"use-checkpoint-opt_param-scheduler"}, Alias{"use-checkpoint-lr-scheduler"});

    field("weight-decay", weight_decay, "decoupled weight decay, on matrices only", NotNegative{});
    field("start-weight-decay", start_weight_decay, "weight decay at the first iteration",
          NotNegative{});
    field("end-weight-decay", end_weight_decay, "weight decay at the last iteration",
          NotNegative{});
    field("weight-decay-incr-style", weight_decay_incr_style,
          "how weight decay changes from start to end");
    field("apply-wd-to-qk-layernorm", apply_wd_to_qk_layernorm,
          "also decay the weights of the q and k norms");
    field("clip-grad", clip_grad, "largest norm of the whole gradient; 0 is no limit",
          NotNegative{});

    field("adam-beta1", adam_beta1, "Adam: decay rate of the first moment", FractionBelowOne{});
    field("adam-beta2", adam_beta2, "Adam: decay rate of the second moment", FractionBelowOne{});
    field("adam-eps", adam_eps, "Adam: added to the denominator", Positive{});
    field("sgd-momentum", sgd_momentum, "SGD: momentum", FractionBelowOne{});

    field("use-precision-aware-optimizer", use_precision_aware_optimizer,
          "allow 16-bit main gradients and moments");
    const char* range = "it is too small for squares of gradients; bf16 has fp32's range";
    const char* eight = "moments of 8 bits are not in this build";
    field("main-grads-dtype", main_grads_dtype,
          "type of the main gradients, which sum those of all micro-batches");
    field("exp-avg-dtype", exp_avg_dtype,
          "type of Adam's first moment; bf16 uses stochastic rounding",
          Refuses{{{"fp16", range}, {"fp8", eight}}});
    field("exp-avg-sq-dtype", exp_avg_sq_dtype,
          "type of Adam's second moment; bf16 uses stochastic rounding",
          Refuses{{{"fp16", range}, {"fp8", eight}}});
    field("optimizer-cpu-offload", optimizer_cpu_offload,
          "keep masters and moments in host memory; the CPU updates the weights");
    field("optimizer-offload-fraction", optimizer_offload_fraction,
          "fraction of the parameters that --optimizer-cpu-offload applies to", InRange{0, 1});
    field("overlap-cpu-optimizer-d2h-h2d", overlap_cpu_optimizer_d2h_h2d,
          "copy gradients and weights while other chunks are updated");
    field("optimizer-offload-chunk", optimizer_offload_chunk,
          "elements that are copied and updated at a time", Positive{}, Own{});

    field("loss-scale", loss_scale, "fp16: fixed loss scale", Positive{}, DefaultIs{"dynamic"});
    field("initial-loss-scale", initial_loss_scale, "fp16: first dynamic loss scale", Positive{});
    field("min-loss-scale", min_loss_scale, "fp16: smallest dynamic loss scale", Positive{});
    field("loss-scale-window", loss_scale_window, "fp16: good steps before the loss scale doubles",
          Positive{});
    field("hysteresis", hysteresis, "fp16: overflows before the loss scale halves", Positive{});
  }
};

std::vector<Rule> optimizer_rules();

}  // namespace phx
