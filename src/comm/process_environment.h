// The variables by which CUDA, cuDNN's frontend and NCCL are told something: they read them when
// they are opened. They are set here, once, before this process has a second thread: setenv is not
// safe beside a thread that reads. A program that has not called prepare_process gets one of them,
// which cuDNN's frontend cannot do without, at its first attention (attention_cudnn_graph.cpp).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/comm/launch_environment.h"

namespace phx {

struct ProcessEnvironment {
  std::map<std::string, std::string> variables;  // to be set: what is right already is not here
  std::vector<std::string> notes;                // for the log: what of the user's is overridden
};

// A pure function of the launcher's and the user's variables. `variable` is getenv unless a test
// says otherwise.
ProcessEnvironment process_environment(const std::optional<LaunchEnvironment>& launch,
                                       const Variable& variable = {});

// Sets them, and returns the notes.
std::vector<std::string> prepare_process(const std::optional<LaunchEnvironment>& launch);

}  // namespace phx
