// Puts global tensors together from the parts that ranks hold, and notes where two ranks that hold
// the same element have different values.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "phalanx/verify/layout_run.h"

namespace phx {

class Collector {
 public:
  explicit Collector(LayoutOutcome& outcome) : outcome_(outcome) {}

  // Of flat buffer `flat`, which holds the ranges `held` of the store end to end, the elements that
  // lie in `ranges`. Called by the threads of all ranks.
  void add(GlobalTensors& into, const ParameterStore& store, const Tensor& flat,
           std::span<const FlatRange> held, std::span<const FlatRange> ranges);

 private:
  struct Target {
    const std::string& name;
    GlobalTensor& tensor;
    std::vector<bool>& seen;
  };
  void add(GlobalTensors& into, const Parameter& parameter, const FlatRange& local,
           const std::vector<double>& flat, std::span<const FlatRange> ranges);
  void put(const Target& target, size_t at, double value);

  LayoutOutcome& outcome_;
  std::mutex mutex_;
  std::set<std::string> names_;
  // Which elements a rank has brought already. No value could say so: a rank may hold a nan.
  std::map<const GlobalTensor*, std::vector<bool>> seen_;
};

}  // namespace phx
