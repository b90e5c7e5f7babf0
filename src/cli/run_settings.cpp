#include "phalanx/cli/run_settings.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/cli/build_info.h"
#include "phalanx/cli/train_main.h"
#include "phalanx/train/data_fingerprint.h"

namespace phx {

namespace {

constexpr const char* kContent = "a path of this machine: what is in the files is compared instead";
constexpr const char* kRankZero = "rank 0 alone writes it";

constexpr MayDiffer kFlags[] = {
    {"threads", "machines may have different numbers of cores; results do not depend on it"},
    {"gemm-table", "a file of this machine, made for its GPU"},
    {"device", "`auto` and its result are one thing: the device that is used is compared"},
    {"tensorboard-dir", kRankZero},
    {"metrics-file", kRankZero},
    {"profile-dir", "every rank writes its own trace, on a disk of its machine if need be"},
    {"data-cache-path", "an index is made anew where it is not found"},
    {"data-path", kContent},
    {"train-data-path", kContent},
    {"valid-data-path", kContent},
    {"test-data-path", kContent},
    {"data-args-path", kContent},
    {"per-split-data-args-path", kContent},
    {"token-file", kContent},
    {"tokenizer-model", kContent},
    {"vocab-file", kContent},
    {"merge-file", kContent},
    {"chat-template", kContent},
};

// Variables that change what libraries compute, or how ranks talk to each other.
constexpr std::string_view kPrefixes[] = {"PHX_",      "NCCL_",   "CUBLAS_",
                                          "CUBLASLT_", "CUDNN_",  "NVIDIA_TF32_OVERRIDE",
                                          "OPENBLAS_", "ONEDNN_", "DNNL_"};

constexpr const char* kNetwork = "network cards have other names on other machines";
constexpr const char* kTalk = "says what is logged, and where";

constexpr const char* kPlugin = "a library's path of this machine";

constexpr MayDiffer kVariables[] = {
    {"PHX_LAUNCHER", "a name for messages"},
    {"PHX_LEDGER_DIR", "a folder of this machine"},
    {"PHX_JOB_KEY", "a secret, which is not shown; ranks that met have the same"},
    {"PHX_INTERFACE", kNetwork},
    {"PHX_MESH_PORT", "each machine has ports of its own"},
    {"PHX_STORE_PORT", "ranks that met have found the port"},
    {"NCCL_HOSTID", "the machine's name"},
    {"NCCL_SOCKET_IFNAME", kNetwork},
    {"NCCL_IB_HCA", kNetwork},
    {"NCCL_IB_GID_INDEX", kNetwork},
    {"NCCL_TOPO_FILE", "describes this machine"},
    {"NCCL_NET_PLUGIN", kPlugin},
    {"NCCL_TUNER_PLUGIN", kPlugin},
    {"NCCL_PROFILER_PLUGIN", kPlugin},
    {"NCCL_MNNVL_UUID", "names this machine's NVLink domain"},
    {"NCCL_MNNVL_CLIQUE_ID", "names this machine's NVLink domain"},
    {"NCCL_TOPO_DUMP_FILE", kTalk},
    {"NCCL_GRAPH_DUMP_FILE", kTalk},
    {"NCCL_CONF_FILE", "a path of this machine"},
    {"NCCL_DEBUG", kTalk},
    {"NCCL_DEBUG_FILE", kTalk},
    {"NCCL_DEBUG_SUBSYS", kTalk},
    {"OPENBLAS_NUM_THREADS", "products run on the rank's own threads"},
    {"OPENBLAS_VERBOSE", kTalk},
    {"ONEDNN_VERBOSE", kTalk},
    {"DNNL_VERBOSE", kTalk},
};

bool may_differ(std::span<const MayDiffer> list, std::string_view name) {
  return std::ranges::any_of(list, [&](const MayDiffer& entry) { return name == entry.name; });
}

void add_flags(PretrainOptions options, Settings& settings) {
  // Ranks in other folders would look elsewhere.
  for (std::string* path :
       {&options.train.save, &options.train.load, &options.train.pretrained_checkpoint})
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  const OptionSet set = pretrain_option_set(options);
  for (const Option& option : set.all()) {
    if (may_differ(kFlags, option.name)) continue;
    const nlohmann::json value = option.get();
    settings[option.flag()] = value.is_null() ? "unset" : value_text(value);
  }
}

}  // namespace

std::span<const MayDiffer> flags_that_may_differ() { return kFlags; }
std::span<const MayDiffer> variables_that_may_differ() { return kVariables; }

std::vector<std::string> environment_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable)
    variables.emplace_back(*variable);
  return variables;
}

Settings run_settings(const PretrainOptions& options, const std::string& device,
                      std::span<const std::string> variables) {
  Settings settings;
  add_flags(options, settings);
  settings["phalanx"] = str_cat("version ", program_version(), ", build ",
                                build_id().empty() ? "unknown" : build_id().substr(0, 16));
  settings["device"] = device;
  for (const auto& [name, content] : data_contents(run_config(options))) settings[name] = content;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    const std::string name = variable.substr(0, equals);
    const bool compared =
        std::ranges::any_of(kPrefixes, [&](auto prefix) { return name.starts_with(prefix); });
    if (!compared || equals == std::string::npos || may_differ(kVariables, name)) continue;
    settings[name] = variable.substr(equals + 1);
  }
  return settings;
}

}  // namespace phx
