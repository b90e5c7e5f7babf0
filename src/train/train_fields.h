// The fields of TrainConfig as options. Included where options are made of them.
#pragma once

#include "phalanx/train/train_config.h"

namespace phx {

template <class Field>
void TrainConfig::each(Field&& field) {
  // Beyond these a number is a typing mistake, and samples would no longer fit 64 bits.
  const InRange micro_batch{1, 1 << 20}, batch{1, 1 << 24}, iterations{0, 2147483647},
      samples{1, 1e15};
  field("micro-batch-size", micro_batch_size, "sequences in one forward pass", micro_batch,
        Required{});
  field("global-batch-size", global_batch_size, "sequences in one optimizer step", batch,
        DefaultIs{"one micro-batch a data-parallel rank"});
  field("step-batch-size-schedule", step_batch_size_schedule,
        "global batch sizes over the run, each with the number of tokens from which it applies: "
        "\"0:768 250B:1536\"");
  field("decrease-batch-size-if-needed", decrease_batch_size_if_needed,
        "round --global-batch-size down to a multiple of micro-batch and data-parallel ranks");
  field("train-iters", train_iters, "optimizer steps of the run", iterations);
  field("train-samples", train_samples, "length of the run in sequences, instead of --train-iters",
        samples);
  field("exit-interval", exit_interval, "stop at the first iteration divisible by this",
        Positive{});
  field("exit-duration-in-mins", exit_duration_in_mins, "save and stop after this many minutes",
        Positive{});
  field("seed", seed, "seed of all random numbers", NotNegative{});
  field("loss", loss, "loss to minimise, by its name in the program's catalogue", Own{});
  field("loss-average", loss_average,
        "average the loss over all tokens of the batch, or first within each micro-batch and then "
        "over micro-batches, as Megatron does without --calculate-per-token-loss",
        Own{});

  field("bf16", bf16, "weights and activations in bfloat16, masters in fp32");
  field("fp16", fp16, "weights and activations in half precision, with loss scaling");
  field("fp64", fp64, "everything in double precision: slow, for verification", Own{});
  field("device", device, "where to train; auto takes a GPU when there is one", Own{});
  field("threads", threads, "CPU threads; 0 means one per core", InRange{0, 4096}, Own{});
  field("deterministic-mode", deterministic_mode, "the same bits every time, also on GPUs");
  field("cudnn-attention", cudnn_attention,
        "checked: compare each of cuDNN's attention plans with our own kernels at its first use; "
        "trusted: use cuDNN without this check; off: do not use cuDNN",
        Own{});
  field("gemm-table", gemm_table,
        "tuned algorithms for matrix products: a file of `phalanx tune`, or none",
        DefaultIs{"the user's and the program's, where they fit"}, Own{});
  field("check-for-nan-in-loss-and-grad", check_for_nan_in_loss_and_grad,
        "skip steps whose gradients are not finite, and continue",
        OffSwitch{"no-check-for-nan-in-loss-and-grad"},
        OffSwitch{"disable-check-for-nan-in-loss-and-grad"});
  field("arena", arena, "use the caching allocator only, without a planned arena", Own{});

  field("recompute-granularity", recompute_granularity,
        "recompute whole layers, or only some modules, in the backward",
        Means{"recompute-activations", "selective"});
  field("recompute-method", recompute_method,
        "full: uniform recomputes all layers, in units; block recomputes the first layers, one by "
        "one");
  field("recompute-num-layers", recompute_num_layers,
        "full: layers in a unit (uniform), or layers recomputed (block)", Positive{});
  const char* other_model = "it is part of a model that is not in this build yet";
  field("recompute-modules", recompute_modules,
        "modules to recompute: in all layers (selective), or in the layers that are not recomputed "
        "as a whole (full with block; none if unset). A part of the layers by its name "
        "(self_attention, mlp, moe, or one of your own), or core_attn, layernorm, activation, "
        "moe_act, shared_experts, mla_up_proj",
        DefaultIs{"core_attn"},
        Refuses{{{"gdn_norm_out", other_model},
                 {"gdp_in_proj", other_model},
                 {"gdp_qkv", other_model},
                 {"mhc", other_model}}});

  field("recompute-keep-attention", recompute_keep_attention,
        "full: keep what attention computed (its output and a number for each query and head) "
        "instead of computing it again with the layer",
        Own{});
  field("mlp-chunks-for-training", mlp_chunks_for_training,
        "compute the MLP in so many pieces of the sequence, each of them again in the backward, so "
        "that its activations take the memory of one piece",
        InRange{1, 4096});

  field("freeze-modules", freeze_modules,
        "parameters that are not trained: parts of their names from dot to dot, such as embedding, "
        "mlp or decoder.layers.0; * stands for any letters but dots",
        Own{});

  field("cpu-offloading", cpu_offloading, "keep activations for the backward in host memory",
        Own{});
  field("cpu-offloading-num-layers", cpu_offloading_num_layers,
        "number of layers whose activations are kept in host memory, from the first on",
        NotNegative{});

  field("eval-iters", eval_iters, "global batches in one evaluation", NotNegative{});
  field("eval-interval", eval_interval, "iterations between evaluations; without it there are none",
        Positive{});
  field("skip-train", skip_train, "evaluate only");

  field("log-interval", log_interval, "iterations between log lines", Positive{});
  field("log-params-norm", log_params_norm, "also log the norm of all weights");
  field("log-num-zeros-in-grad", log_num_zeros_in_grad, "also log how many gradients are zero");
  field("tensorboard-dir", tensorboard_dir, "write TensorBoard events into this folder");
  field("tensorboard-log-interval", tensorboard_log_interval, "iterations between its events",
        Positive{});
  field("metrics-file", metrics_file,
        "write one JSON object per iteration to this file; a new run keeps an existing file as "
        "FILE.old",
        Own{});
  field("profile", profile, "record a trace of some iterations, for Perfetto");
  field("profile-step-start", profile_step_start,
        "iterations that are done when the recording starts", NotNegative{});
  field("profile-step-end", profile_step_end, "iterations that are done when the recording ends",
        Positive{});
  field("profile-ranks", profile_ranks, "ranks that are profiled", NotNegative{}, DefaultIs{"all"});
  field("profile-dir", profile_dir, "folder for the trace", Own{});
  field("nvtx-ranges", nvtx_ranges, "name kernels and phases for Nsight, also without --profile");
  field("check-args", check_args, "check and print the options, then stop", Own{});

  field("save", save, "folder to save checkpoints into");
  field("load", load, "folder to resume from");
  field("save-interval", save_interval, "iterations between checkpoints", Positive{},
        Alias{"persistent-save-interval"});
  field("save-retain-interval", save_retain_interval,
        "keep only checkpoints at multiples of this, and the newest", Positive{});
  field("save-hf-interval", save_hf_interval,
        "also write checkpoints at multiples of this as Hugging Face folders, under SAVE/hf",
        Positive{}, Own{});
  field("async-save", async_save, "write checkpoints in the background, while training continues");
  field("save-buffer-mib", save_buffer_mib, "host memory per rank for asynchronous saves, in MiB",
        InRange{16, 1 << 24}, DefaultIs{"the whole state, or three quarters of the free memory"},
        Own{});
  field("save-verify", save_verify,
        "read every checkpoint back from the disk and check it before the tracker names it", Own{});
  field("save-into-used-folder", save_into_used_folder,
        "start a new run in a --save folder that holds checkpoints of another run, and replace "
        "those with the same numbers",
        Own{});
  field("save-optim", save_optim, "save weights only");
  field("load-optim", load_optim, "load weights and iteration only");
  field("save-rng", save_rng, "leave the seed out of checkpoints");
  field("load-rng", load_rng, "allow another --seed than the checkpoint's");
  field("finetune", finetune, "load weights only and start at iteration 0");
  field("pretrained-checkpoint", pretrained_checkpoint,
        "weights to start from when --load holds no checkpoint");
  field("ckpt-step", ckpt_step, "load the checkpoint of this iteration", Positive{},
        DefaultIs{"the newest"});
  field("exit-on-missing-checkpoint", exit_on_missing_checkpoint,
        "fail if --load holds no checkpoint, instead of starting a new run");
  field("load-newest-valid", load_newest_valid, "verify checkpoints, and load the newest valid one",
        Own{});
  field("auto-resume", auto_resume,
        "go on from the newest checkpoint in --save; --load, --finetune, --ckpt-step and "
        "--no-load-optim count only while there is none",
        Own{});
  field("use-checkpoint-args", use_checkpoint_args,
        "take model options that are not given from the checkpoint");
}

}  // namespace phx
