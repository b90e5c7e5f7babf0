// A run: how long, in which batches and precision, what is recomputed, evaluated, logged and saved.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/option_traits.h"
#include "phalanx/core/runtime.h"

namespace phx {

class BatchSchedule;
struct Rule;

enum class Precision { fp32, bf16, fp16, fp64 };

enum class DeviceChoice { automatic, cpu, cuda };
constexpr auto option_names(CudnnUse) { return std::array{"checked", "trusted", "off"}; }
constexpr auto option_names(DeviceChoice) { return std::array{"auto", "cpu", "cuda"}; }

enum class RecomputeGranularity { full, selective };
constexpr auto option_names(RecomputeGranularity) { return std::array{"full", "selective"}; }

enum class RecomputeMethod { uniform, block };
constexpr auto option_names(RecomputeMethod) { return std::array{"uniform", "block"}; }

// What the loss that gradients are of is an average over.
enum class LossAverage { token, micro_batch };
constexpr auto option_names(LossAverage) { return std::array{"token", "micro-batch"}; }

struct TrainConfig {
  // Length and batches.
  int64_t micro_batch_size = 0;
  std::optional<int64_t> global_batch_size;
  std::string step_batch_size_schedule;
  bool decrease_batch_size_if_needed = false;
  std::optional<int64_t> train_iters;
  std::optional<int64_t> train_samples;
  std::optional<int64_t> exit_interval;
  std::optional<int64_t> exit_duration_in_mins;
  int64_t seed = 1234;
  std::string loss = "cross-entropy";  // a name of the catalogue (models/loss.h)
  LossAverage loss_average = LossAverage::token;

  // Where and in which numbers.
  bool bf16 = false;
  bool fp16 = false;
  bool fp64 = false;
  DeviceChoice device = DeviceChoice::automatic;
  int64_t threads = 0;
  bool deterministic_mode = false;
  CudnnUse cudnn_attention = CudnnUse::checked;
  std::string gemm_table;
  bool check_for_nan_in_loss_and_grad = true;
  bool arena = true;

  // Recompute.
  std::optional<RecomputeGranularity> recompute_granularity;
  std::optional<RecomputeMethod> recompute_method;
  std::optional<int64_t> recompute_num_layers;
  std::vector<std::string> recompute_modules;
  bool recompute_keep_attention = false;
  int64_t mlp_chunks_for_training = 1;

  // What is not trained.
  std::vector<std::string> freeze_modules;

  // Activations in host memory.
  bool cpu_offloading = false;
  int64_t cpu_offloading_num_layers = 0;

  // Evaluation.
  int64_t eval_iters = 100;
  std::optional<int64_t> eval_interval;
  bool skip_train = false;

  // Logs.
  int64_t log_interval = 100;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::string tensorboard_dir;
  int64_t tensorboard_log_interval = 1;
  std::string metrics_file;
  bool check_args = false;
  bool profile = false;
  int64_t profile_step_start = 10;
  int64_t profile_step_end = 12;
  std::vector<int64_t> profile_ranks;
  std::string profile_dir = "profile";
  bool nvtx_ranges = false;

  // Checkpoints.
  std::string save;
  std::string load;
  std::optional<int64_t> save_interval;
  std::optional<int64_t> save_retain_interval;
  std::optional<int64_t> save_hf_interval;
  bool async_save = false;
  std::optional<int64_t> save_buffer_mib;  // unset: by the machine's free memory
  bool save_verify = false;
  bool save_into_used_folder = false;
  bool save_optim = true;
  bool load_optim = true;
  bool save_rng = true;
  bool load_rng = true;
  bool finetune = false;
  std::string pretrained_checkpoint;
  std::optional<int64_t> ckpt_step;
  bool exit_on_missing_checkpoint = false;
  bool load_newest_valid = false;
  bool auto_resume = false;
  bool use_checkpoint_args = false;

  Precision precision() const;
  // What every iteration's batch follows from; Megatron's default is one micro-batch a rank.
  BatchSchedule batch_schedule(int64_t seq_length, int64_t data_parallel) const;
  // The largest batch of the run: memory is there for it, evaluation is done with it.
  int64_t global_batch(int64_t data_parallel = 1) const;
  int64_t num_micro_batches(int64_t data_parallel = 1) const;  // of the largest batch
  int64_t iterations(const BatchSchedule& batches) const;      // or from --train-samples
  bool recompute_core_attention() const;  // selective, with core_attn among the modules

  void resolve(int64_t data_parallel = 1);  // writes what unset fields come to into the fields

  template <class Field>
  void each(Field&& field);  // train_fields.h, for those who make options of it
};

std::vector<Rule> train_rules();

}  // namespace phx
