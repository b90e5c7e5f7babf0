#include "phalanx/train/batch_loader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/mapped_faults.h"
#include "phalanx/base/math.h"
#include "phalanx/ops/lm_loss.h"

namespace phx {

namespace {

constexpr auto kIgnored = int32_t(LmLossOptions{}.ignore_index);

bool all_below(std::span<const int32_t> tokens, int64_t vocab_size) {
  uint32_t largest = 0;  // a negative one is larger than any vocabulary
  for (const int32_t token : tokens) largest = std::max(largest, uint32_t(token));
  return int64_t{largest} < vocab_size;
}

}  // namespace

int64_t BatchLoader::Layout::size() const {
  return cu_seqlens_at() + (packed ? round_up(row + 1, 4) : 0);
}

BatchLoader::BatchLoader(std::shared_ptr<const SampleSource> source, const BatchShape& shape,
                         int64_t vocab_size, Device device, const BatchOrder::Options& order)
    : shape_(shape),
      interleaved_(order.type == DataloaderType::cyclic && !order.data_sharding),
      num_micro_batches_(shape.num_micro_batches),
      tokens_(size_t(shape.num_micro_batches), 0) {
  const SampleParts parts = source->parts();
  const int64_t row = shape.seq_length * shape.micro_batch;
  const Layout whole{.positions = parts.positions,
                     .packed = parts.cu_seqlens,
                     .plane = row,
                     .ahead = shape.ahead,
                     .row = row};
  layout_ = whole;
  layout_.plane = row / shape.cut.ranks;
  PHX_CHECK(shape.reads || !parts.any(),
            "a rank that reads no samples cannot know their masks, positions and lengths");
  if (!shape.reads) return;
  const bool meta = device.kind() == DeviceKind::meta;
  const std::optional<int64_t> num_samples =
      meta || order.type == DataloaderType::single ? std::nullopt : source->num_samples();
  const BatchCut cut{.micro_batch = shape.micro_batch,
                     .data_ranks = shape.data_ranks,
                     .data_rank = shape.data_rank};
  const BatchOrder reading = meta ? BatchOrder({}, cut, {}) : BatchOrder(order, cut, num_samples);
  reader_ = std::make_shared<const Reader>(
      Reader{std::move(source), reading, shape, whole, layout_, vocab_size});
  device_ = empty({shape.num_micro_batches, layout_.size()}, DType::i32, device, Purpose::runtime);
  for (Staging& staging : staging_)
    staging.memory = device.runtime().backend().host_buffer(device_.bytes());
}

void BatchLoader::Reader::check(const Sample& sample, int64_t index) const {
  const auto s = size_t(shape.seq_length);
  const SampleParts parts = source->parts();
  PHX_ASSERT(sample.tokens.size() == s && sample.labels.size() == s &&
                 sample.loss_mask.size() == (parts.loss_mask ? s : 0) &&
                 sample.positions.size() == (parts.positions ? s : 0) &&
                 (!parts.cu_seqlens ||
                  (sample.cu_seqlens.size() >= 2 && sample.cu_seqlens.back() == shape.seq_length)),
             "sample ", index, " of ", source->description(), " does not have its parts");
  if (all_below(sample.tokens, vocab_size) && all_below(sample.labels, vocab_size)) return;
  for (size_t i = 0; i < s; ++i) {
    const bool label = uint32_t(sample.tokens[i]) < vocab_size;
    const int32_t token = label ? sample.labels[i] : sample.tokens[i];
    // What does not count may be anything.
    if (label && parts.loss_mask && sample.loss_mask[i] == 0) continue;
    PHX_CHECK(token >= 0 && token < vocab_size, label ? "label " : "token ", i, " of sample ",
              index, " is ", token, ", outside of the vocabulary of ", vocab_size,
              "\n  hint: the data was made with another tokenizer, or --vocab-size is too small");
  }
}

// Sample j of a micro-batch into its numbers.
void BatchLoader::Reader::fill(const Sample& sample, int64_t index, int64_t j, int32_t* numbers,
                               HostBatch& batch, Sequences& sequences) const {
  check(sample, index);
  const int64_t s = shape.seq_length, b = shape.micro_batch, plane = layout.plane;
  const int64_t first = layout.packed ? j * s : j, step = layout.packed ? 1 : b;
  int32_t *tokens = numbers + first, *labels = numbers + plane + first;
  for (int64_t i = 0; i < s; ++i) tokens[i * step] = sample.tokens[size_t(i)];
  if (sample.loss_mask.empty()) {
    for (int64_t i = 0; i < s; ++i) labels[i * step] = sample.labels[size_t(i)];
    batch.tokens.back() += s;
  } else {
    for (int64_t i = 0; i < s; ++i) {
      const bool counts = sample.loss_mask[size_t(i)] != 0;
      labels[i * step] = counts ? sample.labels[size_t(i)] : kIgnored;
      batch.tokens.back() += counts;
    }
  }
  if (layout.positions) {
    int32_t* positions = numbers + layout.positions_at(0) + first;
    for (int64_t i = 0; i < s; ++i) positions[i * step] = sample.positions[size_t(i)];
  }
  if (layout.ahead > 0) fill_ahead(sample, j, numbers, batch);
  if (!layout.packed) {
    sequences.squared += s * s;
    return;
  }
  int32_t* ends = numbers + layout.cu_seqlens_at();
  if (j == 0) ends[0] = 0;
  for (size_t i = 1; i < sample.cu_seqlens.size(); ++i) {
    const int32_t length = sample.cu_seqlens[i] - sample.cu_seqlens[i - 1];
    PHX_ASSERT(length > 0, "sample ", index, " has a sequence of ", length, " tokens");
    sequences.longest = std::max<int64_t>(sequences.longest, length);
    sequences.squared += int64_t{length} * length;
    ends[++sequences.count] = int32_t(j * s) + sample.cu_seqlens[i];
  }
}

// Where a sequence ends there is nothing ahead.
void BatchLoader::Reader::fill_ahead(const Sample& sample, int64_t j, int32_t* numbers,
                                     HostBatch& batch) const {
  const int64_t s = shape.seq_length, step = layout.packed ? 1 : shape.micro_batch;
  const int64_t first = layout.packed ? j * s : j;
  const std::vector<int32_t> whole{0, int32_t(s)};
  const std::vector<int32_t>& ends = layout.packed ? sample.cu_seqlens : whole;
  for (int64_t k = 1; k <= layout.ahead; ++k) {
    int32_t* tokens = numbers + layout.tokens_at(k) + first;
    int32_t* labels = numbers + layout.labels_at(k) + first;
    int32_t* positions = layout.positions ? numbers + layout.positions_at(k) + first : nullptr;
    int64_t& counted = batch.ahead[batch.ahead.size() - size_t(layout.ahead - k) - 1];
    for (size_t sequence = 1; sequence < ends.size(); ++sequence) {
      for (int64_t i = ends[sequence - 1]; i < ends[sequence]; ++i) {
        const auto from = size_t(i + k);
        const bool within = i + k < ends[sequence];
        const bool counts = within && (sample.loss_mask.empty() || sample.loss_mask[from] != 0);
        tokens[i * step] = within ? sample.tokens[from] : 0;
        labels[i * step] = counts ? sample.labels[from] : kIgnored;
        if (positions != nullptr) positions[i * step] = within ? sample.positions[from] : 0;
        counted += counts;
      }
    }
  }
}

BatchLoader::HostBatch BatchLoader::Reader::read(int64_t consumed,
                                                 int64_t num_micro_batches) const {
  HostBatch batch;
  batch.numbers.resize(size_t(num_micro_batches * layout.size()));
  Sample sample;
  for (int64_t k = 0; k < num_micro_batches; ++k) {
    int32_t* numbers = batch.numbers.data() + k * layout.size();
    Sequences sequences{.count = 0, .longest = 0};
    batch.tokens.push_back(0);
    batch.ahead.resize(batch.ahead.size() + size_t(layout.ahead));
    for (int64_t j = 0; j < shape.micro_batch; ++j) {
      const int64_t index = order.at(consumed + k * shape.data_ranks * shape.micro_batch, j);
      source->sample(index, sample);
      fill(sample, index, j, numbers, batch, sequences);
    }
    // The rest are empty sequences at the end.
    if (layout.packed)
      std::fill(numbers + layout.cu_seqlens_at() + sequences.count, numbers + layout.size(),
                int32_t(layout.plane));
    batch.sequences.push_back(sequences);
  }
  check_mapped_files();  // what was read may be zeros of a file that is not whole any more
  keep_own_rows(batch.numbers);
  return batch;
}

void BatchLoader::Reader::keep_own_rows(std::vector<int32_t>& numbers) const {
  if (shape.cut.ranks == 1) return;
  const int64_t width = layout.packed ? 1 : shape.micro_batch;  // of a row of numbers
  const std::vector<RowSpan> spans = shape.cut.spans(layout.plane / width);
  const int64_t planes = layout.cu_seqlens_at() / layout.plane;
  const int64_t micro_batches = int64_t(numbers.size()) / layout.size();
  std::vector<int32_t> kept(size_t(micro_batches * own.size()));
  for (int64_t k = 0; k < micro_batches; ++k) {
    const int32_t* from = numbers.data() + k * layout.size();
    int32_t* to = kept.data() + k * own.size();
    for (int64_t plane = 0; plane < planes; ++plane)
      for (const RowSpan& span : spans)
        std::copy_n(from + plane * layout.plane + span.global * width, span.count * width,
                    to + plane * own.plane + span.local * width);
    std::copy_n(from + layout.cu_seqlens_at(), layout.size() - layout.cu_seqlens_at(),
                to + own.cu_seqlens_at());
  }
  numbers = std::move(kept);
}

// Token 0 everywhere, and no label that counts.
BatchLoader::HostBatch BatchLoader::Reader::blank(int64_t num_micro_batches) const {
  HostBatch batch;
  batch.numbers.resize(size_t(num_micro_batches * layout.size()));
  batch.tokens.assign(size_t(num_micro_batches), 0);
  batch.ahead.assign(size_t(num_micro_batches * layout.ahead), 0);
  const auto b = shape.micro_batch;
  for (int64_t k = 0; k < num_micro_batches; ++k) {
    int32_t* numbers = batch.numbers.data() + k * layout.size();
    for (int64_t ahead = 0; ahead <= layout.ahead; ++ahead)
      std::fill_n(numbers + layout.labels_at(ahead), layout.plane, kIgnored);
    batch.sequences.push_back({.count = b,
                               .longest = shape.seq_length,
                               .squared = b * shape.seq_length * shape.seq_length});
    if (!layout.packed) continue;
    int32_t* ends = numbers + layout.cu_seqlens_at();
    std::fill(ends, numbers + layout.size(), int32_t(layout.plane));
    for (int64_t j = 0; j < b; ++j) ends[j] = int32_t(j * shape.seq_length);
  }
  keep_own_rows(batch.numbers);
  return batch;
}

bool BatchLoader::begin_load(int64_t consumed, int64_t num_micro_batches) {
  PHX_CHECK(num_micro_batches >= 1 && num_micro_batches <= shape_.num_micro_batches, "a batch of ",
            num_micro_batches, " micro-batches, where there is room for ",
            shape_.num_micro_batches);
  consumed_ = consumed;
  num_micro_batches_ = num_micro_batches;
  tokens_.assign(size_t(num_micro_batches), layout_.row);
  tokens_ahead_.clear();
  for (int64_t i = 0; i < num_micro_batches; ++i)
    for (int64_t k = 1; k <= layout_.ahead; ++k)
      tokens_ahead_.push_back(layout_.row - shape_.micro_batch * std::min(k, shape_.seq_length));
  sequences_.clear();
  return shape_.reads && device_.device().kind() != DeviceKind::meta;
}

void BatchLoader::load(int64_t consumed, int64_t num_micro_batches) {
  if (begin_load(consumed, num_micro_batches)) place(next(consumed, num_micro_batches));
}

std::exception_ptr BatchLoader::try_load(int64_t consumed, int64_t num_micro_batches) {
  if (!begin_load(consumed, num_micro_batches)) return nullptr;
  HostBatch batch;
  std::exception_ptr error;
  try {
    batch = next(consumed, num_micro_batches);
  } catch (...) {
    error = std::current_exception();
    batch = reader_->blank(num_micro_batches);
  }
  place(std::move(batch));
  return error;
}

// The batch after `consumed` samples; the one behind it is begun to be read.
BatchLoader::HostBatch BatchLoader::next(int64_t consumed, int64_t num_micro_batches) {
  std::optional<Ahead> ahead = std::exchange(ahead_, std::nullopt);
  const bool was_read =
      ahead && ahead->consumed == consumed && ahead->num_micro_batches == num_micro_batches;
  HostBatch batch = was_read ? ahead->batch.get() : reader_->read(consumed, num_micro_batches);
  ahead_ = Ahead{
      consumed + num_micro_batches * shape_.micro_batch * shape_.data_ranks, num_micro_batches, {}};
  ahead_->batch = std::async(std::launch::async,
                             [reader = reader_, first = ahead_->consumed, num_micro_batches] {
                               return reader->read(first, num_micro_batches);
                             });
  return batch;
}

void BatchLoader::place(HostBatch batch) {
  Runtime& runtime = device_.runtime();
  Staging& staging = staging_[next_];
  next_ = 1 - next_;
  runtime.backend().wait_on_host(staging.read);
  std::memcpy(staging.memory.get(), batch.numbers.data(), batch.numbers.size() * sizeof(int32_t));
  Tensor used = device_.rows(0, num_micro_batches_);
  copy_from_host(used, static_cast<const int32_t*>(staging.memory.get()));
  staging.read = runtime.stream(StreamName::compute).record();
  tokens_ = std::move(batch.tokens);
  tokens_ahead_ = std::move(batch.ahead);
  sequences_ = std::move(batch.sequences);
}

int64_t BatchLoader::squared_lengths() const {
  // Nothing was read: by a rank that need not, because no sample is packed, or on meta.
  if (sequences_.empty())
    return num_micro_batches_ * shape_.micro_batch * shape_.seq_length * shape_.seq_length;
  int64_t sum = 0;
  for (const Sequences& sequences : sequences_) sum += sequences.squared;
  return sum;
}

SamplePlace BatchLoader::samples(int64_t k) const {
  const int64_t before = consumed_ + k * shape_.data_ranks * shape_.micro_batch;
  const int64_t tokens = layout_.packed ? shape_.seq_length : 0;
  if (interleaved_)
    return {.first = before + shape_.data_rank, .stride = shape_.data_ranks, .tokens = tokens};
  return {.first = before + shape_.data_rank * shape_.micro_batch, .tokens = tokens};
}

Batch BatchLoader::micro_batch(int64_t k) const {
  if (!shape_.reads) return {};
  const Tensor numbers = device_.rows(k, 1).reshape({layout_.size()});
  const int64_t plane = layout_.plane;
  const Shape shape = layout_.packed
                          ? Shape{plane, 1}
                          : Shape{shape_.cut.rows(shape_.seq_length), shape_.micro_batch};
  Batch batch{.counted = {tokens_[size_t(k)]}};
  for (int64_t ahead = 0; ahead <= layout_.ahead; ++ahead) {
    const auto add = [&](const std::string& name, int64_t at) {
      batch.tensors.add(ahead == 0 ? name : str_cat(name, ".", ahead),
                        numbers.rows(at, plane).reshape(shape));
    };
    add("tokens", layout_.tokens_at(ahead));
    add("labels", layout_.labels_at(ahead));
    if (layout_.positions) add("positions", layout_.positions_at(ahead));
    if (ahead > 0) batch.counted.push_back(tokens_ahead_[size_t(k * layout_.ahead + ahead - 1)]);
  }
  if (!layout_.packed) return batch;
  // Memory on a CPU follows from the number of sequences and the longest of them; with as many as
  // there can be, most of them empty, every step asks for the same. On a GPU memory does not depend
  // on them, but empty ones cost time, and each pair of numbers costs a plan of attention: powers
  // of two are few.
  Sequences sequences{.count = layout_.row, .longest = shape_.seq_length};
  if (device_.device().target() != DeviceKind::cpu && !sequences_.empty()) {
    const auto power = [](int64_t n) { return int64_t(std::bit_ceil(uint64_t(n))); };
    sequences.count = std::min(power(sequences_[size_t(k)].count), sequences.count);
    sequences.longest = std::min(power(sequences_[size_t(k)].longest), sequences.longest);
  }
  batch.packed = {.cu_seqlens = numbers.rows(layout_.cu_seqlens_at(), sequences.count + 1),
                  .max_seqlen = sequences.longest};
  return batch;
}

}  // namespace phx
