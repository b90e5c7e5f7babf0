#include "phalanx/optim/optimizer_config.h"

#include <string>

#include "phalanx/base/error.h"
#include "phalanx/base/option_rules.h"

namespace phx {
namespace {

void check_weight_decay(const OptionSet& options, Problems& problems) {
  const std::string style = options.text("weight-decay-incr-style");
  for (const char* name : {"start-weight-decay", "end-weight-decay"}) {
    const std::string flag = str_cat("--", name);
    if (style == "constant" && options.active(name)) {
      problems.push_back({ProblemKind::rule, flag,
                          shown(options, name) + " needs a --weight-decay-incr-style that changes, "
                                                 "but it is constant",
                          "use --weight-decay-incr-style linear or cosine, or --weight-decay"});
    }
    if (style != "constant" && !options.active(name)) {
      problems.push_back({ProblemKind::rule, flag,
                          str_cat("--weight-decay-incr-style ", style, " requires ", flag),
                          str_cat("add ", flag, ", or leave the style constant")});
    }
  }
}

void check_wsd(const OptionSet& options, Problems& problems) {
  const bool wsd = options.text("lr-decay-style") == "WSD";
  const bool length =
      options.active("lr-wsd-decay-iters") || options.active("lr-wsd-decay-samples");
  if (wsd && !length) {
    problems.push_back({ProblemKind::rule, "--lr-decay-style",
                        "--lr-decay-style WSD requires the length of its final fall",
                        "add --lr-wsd-decay-iters or --lr-wsd-decay-samples"});
  }
  if (!wsd && length) {
    problems.push_back({ProblemKind::rule, "--lr-wsd-decay-iters",
                        str_cat("a WSD decay length has no effect with --lr-decay-style ",
                                options.text("lr-decay-style")),
                        "use --lr-decay-style WSD"});
  }
}

// The floor of the second learning rate, given or --min-lr, lies under its peak.
void check_decoupled(const OptionSet& options, Problems& problems) {
  const auto peak = options.number("decoupled-lr");
  const bool own_floor = options.active("decoupled-min-lr");
  if (!options.active("decoupled-lr")) {
    if (own_floor) {
      problems.push_back(
          {ProblemKind::rule, "--decoupled-min-lr",
           shown(options, "decoupled-min-lr") + " has no effect without --decoupled-lr",
           "add --decoupled-lr, the peak of that learning rate"});
    }
    return;
  }
  const std::string floor = own_floor ? "decoupled-min-lr" : "min-lr";
  const auto least = options.number(floor);
  if (!peak || !least || *least <= *peak) return;
  problems.push_back(
      {ProblemKind::rule, "--" + floor,
       str_cat(shown(options, floor), " is more than ", shown(options, "decoupled-lr")),
       str_cat("--decoupled-min-lr of 0 to ", *peak, " is possible")});
}

// Zero is Megatron's way to say "no warm-up", so it excludes nothing.
void check_one_warmup(const OptionSet& options, Problems& problems) {
  std::string set;
  int count = 0;
  for (const char* name : {"lr-warmup-fraction", "lr-warmup-iters", "lr-warmup-samples"}) {
    if (options.number(name).value_or(0) == 0) continue;
    set += (count++ == 0 ? "" : " and ") + shown(options, name);
  }
  if (count > 1) {
    problems.push_back({ProblemKind::rule, "--lr-warmup-iters",
                        set + " exclude each other: warm-up has one length", "keep one of them"});
  }
}

// 16 bits beside weights that have more would be their weakest link, and proofs are in fp64.
void check_state_types(const OptionSet& options, Problems& problems) {
  for (const char* name : {"main-grads-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"}) {
    if (options.text(name) == "fp32") continue;
    const std::string flag = str_cat("--", name);
    if (!options.active("use-precision-aware-optimizer"))
      problems.push_back({ProblemKind::rule, flag,
                          shown(options, name) + " requires --use-precision-aware-optimizer",
                          "add it"});
    if (options.text("optimizer") == "sgd" && std::string(name) != "main-grads-dtype")
      problems.push_back(
          {ProblemKind::rule, flag,
           shown(options, name) + " is for --optimizer adam; SGD's state has 32 bits",
           "leave it out"});
    if (options.find("bf16") != nullptr && !options.active("bf16"))
      problems.push_back({ProblemKind::rule, flag,
                          shown(options, name) + " goes with weights in bf16", "add --bf16"});
  }
}

}  // namespace

std::vector<Rule> optimizer_rules() {
  return {
      at_most("min-lr", "lr"),
      at_most("lr-warmup-init", "lr"),
      {"--decoupled-min-lr goes with --decoupled-lr and is at most that", check_decoupled},
      {"at most one of --lr-warmup-fraction, --lr-warmup-iters and --lr-warmup-samples",
       check_one_warmup},
      at_most_one({"override-opt-param-scheduler", "use-checkpoint-opt-param-scheduler"},
                  "one of the two schedules has to win"),
      {"--lr-decay-style WSD and its decay length go together", check_wsd},
      {"--start-weight-decay and --end-weight-decay go with a style that changes",
       check_weight_decay},
      at_most("min-loss-scale", "initial-loss-scale"),
      {"16-bit gradients and moments go with --use-precision-aware-optimizer and --bf16",
       check_state_types},
      requires_option("optimizer-cpu-offload", "use-precision-aware-optimizer",
                      "the CPU updates weights from gradients and states as they are kept"),
      requires_option("optimizer-offload-fraction", "optimizer-cpu-offload", "it says how much"),
      requires_option("overlap-cpu-optimizer-d2h-h2d", "optimizer-cpu-offload",
                      "otherwise nothing is copied"),
  };
}

}  // namespace phx
