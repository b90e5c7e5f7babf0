#include "phalanx/checkpoint/torch/expert_sources.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/strided_copy.h"

namespace phx {

JoinedExperts::JoinedExperts(std::shared_ptr<const TensorSource> source)
    : source_(std::move(source)) {
  std::map<std::string, std::map<int64_t, std::string>> found;
  for (const auto& [name, info] : source_->tensors()) {
    if (const auto expert = expert_number(name))
      found[name.substr(0, expert->begin)][expert->expert] = name;
    else
      infos_[name] = info;
  }
  for (const auto& [name, numbered] : found) {
    PHX_CHECK(!infos_.contains(name), source_->description(), " has ", name, " with and without ",
              "the numbers of experts");
    std::vector<std::string>& names = experts_[name];
    for (const auto& [number, expert] : numbered) names.push_back(expert);
    PHX_CHECK(numbered.rbegin()->first + 1 == int64_t(names.size()), source_->description(),
              " has ", names.size(), " experts of ", name, ", but one with the number ",
              numbered.rbegin()->first);
    const TensorInfo& first = source_->tensors().at(names[0]);
    PHX_CHECK(!first.shape.empty(), source_->description(), ": ", names[0], " has no rows");
    for (const std::string& expert : names)
      PHX_CHECK(source_->tensors().at(expert) == first, source_->description(), ": ", expert,
                " is ", describe(source_->tensors().at(expert)), ", but ", names[0], " is ",
                describe(first));
    infos_[name] = first;
    infos_[name].shape[0] *= int64_t(names.size());
  }
}

void JoinedExperts::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = experts_.find(name);
  if (found == experts_.end()) return source_->read(name, box, out);
  const TensorInfo& info = infos_.at(name);
  check_box(str_cat(description(), ": ", name), info, box, out.size());
  if (box.numel() == 0) return;
  const int64_t rows = info.shape[0] / int64_t(found->second.size());  // of one expert
  const size_t row_bytes = out.size() / size_t(box.size[0]);
  const int64_t end = box.begin[0] + box.size[0];
  for (int64_t row = box.begin[0]; row < end;) {
    Box part = box;
    part.begin[0] = row % rows;
    part.size[0] = std::min(rows - part.begin[0], end - row);
    const size_t bytes = size_t(part.size[0]) * row_bytes;
    source_->read(found->second[size_t(row / rows)], part, out.first(bytes));
    out = out.subspan(bytes);
    row += part.size[0];
  }
}

SplitExperts::SplitExperts(std::shared_ptr<const TensorSource> source, int64_t num_experts)
    : source_(std::move(source)) {
  for (const auto& [name, info] : source_->tensors()) {
    if (!holds_experts(name)) {
      infos_[name] = info;
      continue;
    }
    PHX_CHECK(!info.shape.empty() && info.shape[0] % num_experts == 0, source_->description(), ": ",
              name, " is ", describe(info), ", which ", num_experts,
              " experts do not share evenly");
    TensorInfo one = info;
    one.shape[0] /= num_experts;
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      const std::string numbered = str_cat(name, expert);
      infos_[numbered] = one;
      experts_[numbered] = {name, expert * one.shape[0]};
    }
  }
}

void SplitExperts::read(const std::string& name, const Box& box, std::span<std::byte> out) const {
  const auto found = experts_.find(name);
  if (found == experts_.end()) return source_->read(name, box, out);
  check_box(str_cat(description(), ": ", name), infos_.at(name), box, out.size());
  Box whole = box;
  whole.begin[0] += found->second.first;
  source_->read(found->second.name, whole, out);
}

}  // namespace phx
