#include "phalanx/convert/unstacked_source.h"

#include <algorithm>

#include "phalanx/base/error.h"

namespace phx {
namespace {

// "model.layers.7.mlp.gate.weight" -> "model.layers.7."; empty for tensors outside of layers.
std::string layer_of(const std::string& name, const std::string& layers) {
  if (!name.starts_with(layers)) return "";
  const size_t dot = name.find('.', layers.size());
  return dot == std::string::npos ? "" : name.substr(0, dot + 1);
}

}  // namespace

UnstackedSource::UnstackedSource(std::shared_ptr<const TensorSource> source, const Family& family)
    : source_(std::move(source)) {
  for (const auto& [name, info] : source_->tensors()) {
    const std::string layer = layer_of(name, family.layers);
    const auto row = std::ranges::find_if(family.stacked, [&](const StackedRow& entry) {
      return !layer.empty() && name.substr(layer.size()) == entry.stacked;
    });
    if (row == family.stacked.end())
      add(name, info, {.stacked = name});
    else if (std::string_view(row->hf).find('*') == std::string_view::npos)
      add(layer + row->hf, info, {.stacked = name});
    else
      take_apart(name, info, layer, row->hf);
  }
}

void UnstackedSource::add(const std::string& name, const TensorInfo& info, Place place) {
  const bool fresh = places_.emplace(name, std::move(place)).second;
  PHX_CHECK(fresh, source_->description(), " holds ", name, " twice, under two names");
  tensors_[name] = info;
}

void UnstackedSource::take_apart(const std::string& name, const TensorInfo& info,
                                 const std::string& layer, const char* pattern) {
  const auto parts = int64_t(expand_names(pattern).size());
  PHX_CHECK(info.shape.size() == 3 && info.shape[1] % parts == 0, source_->description(), ": ",
            name, " should be one matrix for each expert, of ", parts, " equal parts");
  const int64_t rows = info.shape[1] / parts;
  for (int64_t e = 0; e < info.shape[0]; ++e) {
    const std::vector<std::string> names = expand_names(expert_name(pattern, e));
    for (int64_t i = 0; i < parts; ++i)
      add(layer + names[size_t(i)], {info.dtype, {rows, info.shape[2]}}, {name, e, i * rows});
  }
}

void UnstackedSource::read(const std::string& name, const Box& box,
                           std::span<std::byte> out) const {
  const auto found = places_.find(name);
  PHX_CHECK(found != places_.end(), source_->description(), " has no tensor ", name);
  const Place& place = found->second;
  if (place.expert < 0) return source_->read(place.stacked, box, out);
  source_->read(place.stacked,
                {{place.expert, place.row + box.begin.at(0), box.begin.at(1)},
                 {1, box.size.at(0), box.size.at(1)}},
                out);
}

}  // namespace phx
