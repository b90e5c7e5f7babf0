#include "phalanx/data/preprocess/preprocess.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/data/indexed/indexed_dataset.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "phalanx/data/preprocess/json_line.h"
#include "phalanx/data/preprocess/text_input.h"

namespace phx {
namespace {

using Clock = std::chrono::steady_clock;

// The documents of a block that go to one part of one key's output.
struct Encoded {
  std::vector<std::byte> tokens;
  std::vector<int32_t> lengths;
};

struct BlockResult {
  std::vector<Encoded> outputs;  // [keys * partitions]
  int64_t skipped = 0, lines = 0;
  std::string first_skipped;
};

// What is the same for all blocks.
struct Encoding {
  const PreprocessOptions& options;
  const Tokenizer& tokenizer;
  TokenCode code;
  std::optional<int32_t> eod;
};

bool blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// One worker's tools.
class BlockEncoder {
 public:
  explicit BlockEncoder(const Encoding& encoding) : encoding_(encoding) {}

  BlockResult encode(const LineBlock& block) {
    const PreprocessOptions& options = encoding_.options;
    BlockResult result;
    result.outputs.resize(options.json_keys.size() * size_t(options.partitions));
    const auto& [file, kind] = options.inputs[block.file];
    std::string_view text = block.text();
    while (!text.empty()) {
      const size_t end =
          kind == TextKind::whole ? text.size() : std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const int64_t number = result.lines++;
      if (blank(line)) continue;
      try {
        encode_line(line, kind, size_t((block.first_index + number) % options.partitions), result);
      } catch (const Error& error) {
        const std::string where =
            str_cat(file.native(), ":", block.first_line + number, ": ", error.what());
        if (!options.skip_broken)
          throw_error(where + "\n  hint: --on-error skip leaves broken lines out and counts them");
        if (result.skipped++ == 0) result.first_skipped = where;
      }
    }
    return result;
  }

 private:
  void encode_line(std::string_view line, TextKind kind, size_t part, BlockResult& result) {
    const PreprocessOptions& options = encoding_.options;
    std::span<const std::string_view> texts(&line, 1);
    if (kind == TextKind::json_lines) {
      texts = json_.parse(line, options.json_keys);
    } else if (kind == TextKind::plain && line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    for (size_t key = 0; key < texts.size(); ++key)
      encode_text(texts[key], result.outputs[key * size_t(options.partitions) + part]);
  }

  void encode_text(std::string_view text, Encoded& out) {
    ids_.clear();
    if (encoding_.options.with_special)
      encoding_.tokenizer.encode_with_special(text, ids_);
    else
      encoding_.tokenizer.encode(text, ids_);
    // As Megatron: an empty document gets no end, and no sequence, but an entry among documents.
    if (encoding_.eod && !ids_.empty()) ids_.push_back(*encoding_.eod);
    PHX_CHECK(ids_.size() <= size_t{0x7fffffff}, "a document of ", ids_.size(),
              " tokens is longer than the format can say");
    append_tokens(ids_, encoding_.code, out.tokens);
    out.lengths.push_back(int32_t(ids_.size()));
  }

  const Encoding& encoding_;
  JsonLineParser json_;
  std::vector<int32_t> ids_;
};

// Blocks in order, each encoded by some worker. The calling thread puts blocks in and takes results
// out; no more than a few blocks are under way.
class OrderedWorkers {
 public:
  explicit OrderedWorkers(const Encoding& encoding) : encoding_(encoding) {
    for (int i = 0; i < encoding.options.workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_there_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool full() const { return tasks_.size() >= threads_.size() * 2 + 1; }
  bool empty() const { return tasks_.empty(); }

  void put(LineBlock block) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::make_unique<Task>());
    tasks_.back()->block = std::move(block);
    waiting_.push_back(tasks_.back().get());
    work_there_.notify_one();
  }

  // Of the oldest block; its memory comes back in `block` to be used again.
  BlockResult take(LineBlock& block) {
    std::unique_lock lock(mutex_);
    Task& task = *tasks_.front();
    done_.wait(lock, [&] { return task.done; });
    if (task.failure) std::rethrow_exception(task.failure);
    BlockResult result = std::move(task.result);
    block = std::move(task.block);
    tasks_.pop_front();
    return result;
  }

 private:
  struct Task {
    LineBlock block;
    BlockResult result;
    std::exception_ptr failure;
    bool done = false;
  };

  void work() {
    BlockEncoder encoder(encoding_);
    std::unique_lock lock(mutex_);
    while (true) {
      work_there_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
      if (stop_) return;
      Task& task = *waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        task.result = encoder.encode(task.block);
      } catch (...) {
        task.failure = std::current_exception();
      }
      lock.lock();
      task.done = true;
      done_.notify_one();
    }
  }

  const Encoding& encoding_;
  std::mutex mutex_;
  std::condition_variable work_there_, done_;
  std::deque<std::unique_ptr<Task>> tasks_;  // in order
  std::deque<Task*> waiting_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

// One key's pair. Parts beyond the first wait in files without a name until all lines are read.
class KeyOutput {
 public:
  KeyOutput(const Path& prefix, TokenCode code, int partitions)
      : prefix_(prefix), writer_(prefix, code) {
    for (int i = 1; i < partitions; ++i) parts_.push_back({SpillFile(prefix), SpillFile(prefix)});
  }

  void add(size_t part, const Encoded& encoded) {
    if (part == 0) {
      writer_.add_tokens(encoded.tokens);
      writer_.add_lengths(encoded.lengths);
      return;
    }
    parts_[part - 1].tokens.write(encoded.tokens);
    parts_[part - 1].lengths.write(std::as_bytes(std::span<const int32_t>(encoded.lengths)));
  }

  void append_parts() {
    for (Part& part : parts_) {
      part.tokens.read_back([&](std::span<const std::byte> piece) { writer_.add_tokens(piece); });
      part.lengths.read_back([&](std::span<const std::byte> piece) {
        std::vector<int32_t> lengths(piece.size() / 4);
        std::memcpy(lengths.data(), piece.data(), piece.size());
        writer_.add_lengths(lengths);
      });
    }
  }

  IndexedWriter& writer() { return writer_; }
  const Path& prefix() const { return prefix_; }

 private:
  struct Part {
    SpillFile tokens, lengths;
  };
  Path prefix_;
  IndexedWriter writer_;
  std::vector<Part> parts_;
};

}  // namespace

std::string progress_line(const PreprocessProgress& progress) {
  const double done =
      progress.bytes_total > 0 ? double(progress.bytes_done) / double(progress.bytes_total) : 0.0;
  const double seconds = std::max(progress.seconds, 1e-9);
  std::string line = progress.bytes_total > 0
                         ? fmt::format("{:3.0f}%", 100 * done)
                         : fmt::format("{:.1f} MB", double(progress.bytes_text) / 1e6);
  line +=
      fmt::format(" | {:.1f} MB/s | {} documents/s", double(progress.bytes_text) / 1e6 / seconds,
                  format_count(double(progress.lines) / seconds));
  if (done > 0 && done < 1)
    line += fmt::format(" | {} left", format_duration(seconds * (1 - done) / done));
  return line;
}

PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                            const std::function<void(const PreprocessProgress&)>& watch) {
  PHX_CHECK(!options.inputs.empty(), "there is no input");
  PHX_CHECK(!options.append_eod || tokenizer.eod().has_value(),
            "--append-eod: the tokenizer has no end-of-document token: ", tokenizer.description());
  for (const TextInput& input : options.inputs)
    PHX_CHECK(input.kind == TextKind::json_lines || options.json_keys.size() == 1,
              input.path.native(), " is plain text, which has one document a ",
              input.kind == TextKind::whole ? "file" : "line", ", but there are ",
              options.json_keys.size(), " --json-keys");
  const Encoding encoding{options, tokenizer, code_for_vocabulary(tokenizer.vocab_size()),
                          options.append_eod ? tokenizer.eod() : std::nullopt};
  const auto start = Clock::now();
  BlockReader reader(options.inputs);
  if (options.output_prefix.has_parent_path()) make_folder(options.output_prefix.parent_path());
  std::vector<std::unique_ptr<KeyOutput>> outputs;
  for (const std::string& key : options.json_keys)
    outputs.push_back(std::make_unique<KeyOutput>(
        Path(str_cat(options.output_prefix.native(), "_", key, "_document")), encoding.code,
        options.partitions));

  PreprocessReport report;
  const auto note = [&](const BlockResult& result) {
    for (size_t key = 0; key < outputs.size(); ++key)
      for (size_t part = 0; part < size_t(options.partitions); ++part)
        outputs[key]->add(part, result.outputs[key * size_t(options.partitions) + part]);
    if (report.skipped == 0) report.first_skipped = result.first_skipped;
    report.skipped += result.skipped;
    report.progress.lines += result.lines;
    report.progress.bytes_done = reader.bytes_in();
    report.progress.bytes_total = reader.bytes_total();
    report.progress.bytes_text = reader.bytes_text();
    report.progress.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (watch) watch(report.progress);
  };
  {
    OrderedWorkers workers(encoding);
    LineBlock block;
    while (reader.next(block)) {
      workers.put(std::move(block));
      block = {};
      if (workers.full()) note(workers.take(block));
    }
    while (!workers.empty()) note(workers.take(block));
  }
  for (auto& output : outputs) output->append_parts();
  for (auto& output : outputs) {
    output->writer().commit();
    report.outputs.push_back(
        {output->prefix(), output->writer().num_documents(), output->writer().num_tokens()});
  }
  report.progress.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace phx
