#include "phalanx/data/gpt/blend.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "phalanx/base/big_array.h"
#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {
namespace {

constexpr size_t kMostDatasets = 32766;  // counted in 16 bits, as Megatron does

std::optional<double> as_number(const std::string& word) {
  double value = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || rest != end || word.empty()) return std::nullopt;
  return value;
}

void check_count(size_t datasets) {
  PHX_CHECK(datasets <= kMostDatasets, "names ", datasets, " datasets; a blend has at most ",
            kMostDatasets);
}

}  // namespace

BlendSpec parse_blend(std::span<const std::string> words) {
  BlendSpec blend;
  size_t numbers = 0;
  for (size_t i = 0; i < words.size(); i += 2) numbers += as_number(words[i]).has_value();
  if (words.size() % 2 != 0 || numbers == 0) {
    blend.prefixes.assign(words.begin(), words.end());
    check_count(blend.prefixes.size());
    return blend;
  }
  PHX_CHECK(numbers == words.size() / 2, "has ", numbers, " weights before ", words.size() / 2,
            " prefixes: either every prefix has a weight before it, or none has");
  for (size_t i = 0; i < words.size(); i += 2) {
    const double weight = *as_number(words[i]);
    PHX_CHECK(weight > 0 && std::isfinite(weight), "gives ", words[i + 1], " the weight ", words[i],
              "; a weight is above 0");
    blend.weights.push_back(weight);
    blend.prefixes.push_back(words[i + 1]);
  }
  check_count(blend.prefixes.size());
  const double sum = numpy_sum(blend.weights);
  for (double& weight : blend.weights) weight /= sum;
  return blend;
}

double numpy_sum(std::span<const double> values) {
  const size_t n = values.size();
  if (n < 8) return std::accumulate(values.begin(), values.end(), 0.0);
  if (n > 128) {
    const size_t half = n / 2 - n / 2 % 8;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double r[8];
  std::copy(values.begin(), values.begin() + 8, r);
  size_t i = 8;
  for (; i < n - n % 8; i += 8)
    for (size_t k = 0; k < 8; ++k) r[k] += values[i + k];
  double sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += values[i];
  return sum;
}

BlendSizes blend_sizes(std::span<const double> weights, int64_t num_samples, double surplus) {
  BlendSizes sizes;
  for (const double weight : weights) {
    const double used = std::ceil(double(num_samples) * weight);
    sizes.used.push_back(int64_t(used));
    sizes.built.push_back(int64_t(std::ceil(used * (1 + surplus))));
  }
  return sizes;
}

namespace {

struct BlendMemory {
  BlendMemory(int64_t num_samples, size_t datasets)
      : dataset(num_samples), sample(num_samples), taken(int64_t(datasets)) {}
  BigArray<int16_t> dataset;
  BigArray<int64_t> sample, taken;
};

BlendIndex index_in(std::shared_ptr<const BlendMemory> memory) {
  return {memory->dataset.span(), memory->sample.span(), memory->taken.span(), memory};
}

}  // namespace

BlendIndex blend_index(std::span<const double> weights, int64_t num_samples) {
  const size_t count = weights.size();
  const auto memory = std::make_shared<BlendMemory>(num_samples, count);
  const std::span<int16_t> dataset = memory->dataset.span();
  const std::span<int64_t> sample = memory->sample.span();
  std::vector<double> taken(count), behind(count);  // counts are far below 2^53
  for (int64_t k = 0; k < num_samples; ++k) {
    const auto place = double(std::max<int64_t>(k, 1));
    double most = -std::numeric_limits<double>::infinity();
#pragma omp simd reduction(max : most)
    for (size_t d = 0; d < count; ++d) {
      behind[d] = weights[d] * place - taken[d];
      most = behind[d] > most ? behind[d] : most;
    }
    size_t first = 0;
    while (behind[first] != most) ++first;
    dataset[size_t(k)] = int16_t(first);
    sample[size_t(k)] = int64_t(taken[first]);
    taken[first] += 1;
  }
  std::transform(taken.begin(), taken.end(), memory->taken.span().begin(),
                 [](double number) { return int64_t(number); });
  return index_in(memory);
}

BlendIndex exhaustive_blend_index(std::span<const int64_t> sizes) {
  const int64_t total = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const auto memory = std::make_shared<BlendMemory>(total, sizes.size());
  const std::span<int64_t> taken = memory->taken.span();
  std::vector<double> weights;
  for (const int64_t size : sizes) weights.push_back(double(size) / double(total));
  for (int64_t k = 0; k < total; ++k) {
    const auto place = double(std::max<int64_t>(k, 1));
    double most = -std::numeric_limits<double>::infinity();
    size_t chosen = sizes.size();
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (taken[d] == sizes[d]) continue;
      const double behind = weights[d] * place - double(taken[d]);
      if (chosen == sizes.size() || behind > most) {
        most = behind;
        chosen = d;
      }
    }
    memory->dataset.span()[size_t(k)] = int16_t(chosen);
    memory->sample.span()[size_t(k)] = taken[chosen]++;
  }
  return index_in(memory);
}

BlendedDataset::BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets,
                               BlendIndex index)
    : datasets_(std::move(datasets)), index_(std::move(index)) {
  PHX_ASSERT(index_.taken.size() == datasets_.size(), "an index of ", index_.taken.size(),
             " datasets for ", datasets_.size());
  for (size_t d = 0; d < datasets_.size(); ++d)
    PHX_CHECK(index_.taken[d] <= datasets_[d]->num_samples(), "the blend takes ", index_.taken[d],
              " samples of dataset ", d, ", which was made for ", *datasets_[d]->num_samples(),
              ": ", datasets_[d]->description(),
              "\n  hint: a larger --mid-level-dataset-surplus makes each a little longer");
}

void BlendedDataset::sample(int64_t index, Sample& out) const {
  PHX_CHECK(index >= 0 && index < int64_t(index_.dataset.size()), "sample ", index,
            " of a blend of ", index_.dataset.size());
  const auto dataset = size_t(index_.dataset[size_t(index)]);
  const int64_t sample = index_.sample[size_t(index)];
  PHX_CHECK(dataset < datasets_.size() && sample >= 0 && sample < index_.taken[dataset],
            "the index of a blend says sample ", sample, " of dataset ", dataset,
            "\n  hint: remove the cached index: it was changed");
  datasets_[dataset]->sample(sample, out);
}

std::string BlendedDataset::description() const {
  return str_cat(format_thousands(int64_t(index_.dataset.size())), " samples blended from ",
                 datasets_.size(), datasets_.size() == 1 ? " dataset" : " datasets");
}

}  // namespace phx
