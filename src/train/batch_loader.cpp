#include "train/batch_loader.h"

#include <utility>

#include "base/error.h"

namespace phx {

BatchLoader::BatchLoader(std::shared_ptr<const SampleSource> source, const BatchShape& shape,
                         int64_t vocab_size, Device device)
    : source_(std::move(source)),
      shape_(shape),
      vocab_size_(vocab_size),
      num_micro_batches_(shape.num_micro_batches),
      sample_(shape.seq_length + 1) {
  if (!shape.reads) return;
  device_ = empty({shape.num_micro_batches, 2, shape.seq_length, shape.micro_batch}, DType::i32,
                  device, Purpose::runtime);
  for (Staging& staging : staging_)
    staging.memory = device.runtime().backend().host_buffer(device_.bytes());
}

void BatchLoader::fill(int32_t* tokens, int32_t* labels, int64_t sample, int64_t column) {
  source_->sample(sample, sample_);
  const int64_t s = shape_.seq_length, b = shape_.micro_batch;
  for (int64_t i = 0; i <= s; ++i)
    PHX_CHECK(sample_[i] >= 0 && sample_[i] < vocab_size_, "token ", i, " of sample ", sample,
              " is ", sample_[i], ", outside of the vocabulary of ", vocab_size_);
  for (int64_t i = 0; i < s; ++i) {
    tokens[i * b + column] = sample_[i];
    labels[i * b + column] = sample_[i + 1];
  }
}

void BatchLoader::load(int64_t first_sample, int64_t num_micro_batches) {
  PHX_CHECK(num_micro_batches >= 1 && num_micro_batches <= shape_.num_micro_batches, "a batch of ",
            num_micro_batches, " micro-batches, where there is room for ",
            shape_.num_micro_batches);
  first_sample_ = first_sample;
  num_micro_batches_ = num_micro_batches;
  tokens_ = shape_.micro_batch * num_micro_batches * shape_.seq_length;
  if (!shape_.reads) return;
  if (device_.device().kind() == DeviceKind::meta) return;
  Runtime& runtime = device_.runtime();
  Staging& staging = staging_[next_];
  next_ = 1 - next_;
  runtime.backend().wait_on_host(staging.read);
  auto* host = static_cast<int32_t*>(staging.memory.get());
  const int64_t plane = shape_.seq_length * shape_.micro_batch;
  for (int64_t k = 0; k < num_micro_batches; ++k)
    for (int64_t j = 0; j < shape_.micro_batch; ++j)
      fill(host + 2 * k * plane, host + (2 * k + 1) * plane, this->first_sample(k) + j, j);
  Tensor used = device_.rows(0, num_micro_batches);
  copy_from_host(used, host);
  staging.read = runtime.stream(StreamName::compute).record();
}

Batch BatchLoader::micro_batch(int64_t k) const {
  if (!shape_.reads) return {};
  const Tensor both = device_.rows(k, 1).reshape({2, shape_.seq_length, shape_.micro_batch});
  const Shape plane{shape_.seq_length, shape_.micro_batch};
  return {.tokens = both.rows(0, 1).reshape(plane), .labels = both.rows(1, 1).reshape(plane)};
}

}  // namespace phx
