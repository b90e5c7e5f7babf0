#include "phalanx/report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {
namespace {

constexpr size_t kFlushAbove = 1 << 16;  // bytes, for callers that use scalar() alone

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = remainder >> 1 ^ (remainder & 1 ? 0x82f63b78u : 0u);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// The protobuf wire format: a key is (field number << 3 | type); types are 0 varint, 1 eight bytes,
// 2 length and bytes, 5 four bytes.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, WireType type) {
  put_varint(out, field << 3 | type);
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5; }
// Summary { repeated Value value = 1; }   Value { string tag = 1; float simple_value = 2; }
std::string event_start(double wall_time) {
  std::string event;
  put_key(event, 1, kFixed64);
  put_little_endian(event, std::bit_cast<uint64_t>(wall_time), 8);
  return event;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Path event_file_name(const Path& folder, double time) {
  make_folder(folder);
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  // TensorBoard reads the files of a folder in the order of their names: time comes first.
  Path path;
  for (int number = 0; path.empty() || std::filesystem::exists(path); ++number) {
    path = folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<int64_t>(time), host,
                                ::getpid(), number);
  }
  return path;
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint32_t>(b)) & 0xff];
  }
  return ~crc;
}

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

TensorBoardWriter::TensorBoardWriter(const Path& folder) : TensorBoardWriter(folder, seconds_now) {}

TensorBoardWriter::TensorBoardWriter(const Path& folder, Clock clock)
    : clock_(std::move(clock)), file_(event_file_name(folder, clock_())) {
  std::string event = event_start(clock_());
  put_bytes(event, 3, "brain.Event:2");  // the version that TensorBoard asks for
  record(event);
  flush();
}

TensorBoardWriter::~TensorBoardWriter() {
  try {
    flush();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

void TensorBoardWriter::scalar(std::string_view tag, double value, int64_t step) {
  std::string value_message, summary;
  put_bytes(value_message, 1, tag);
  put_key(value_message, 2, kFixed32);
  put_little_endian(value_message, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
  put_bytes(summary, 1, value_message);

  std::string event = event_start(clock_());
  put_key(event, 2, kVarint);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);
  record(event);
  if (buffer_.size() > kFlushAbove) flush();
}

// length, its checksum, the event, its checksum
void TensorBoardWriter::record(std::string_view event) {
  std::string length;
  put_little_endian(length, event.size(), 8);
  buffer_ += length;
  put_little_endian(buffer_, masked_crc32c(as_bytes(length)), 4);
  buffer_ += event;
  put_little_endian(buffer_, masked_crc32c(as_bytes(event)), 4);
}

void TensorBoardWriter::flush() {
  if (buffer_.empty()) return;
  const std::string bytes = std::exchange(buffer_, {});  // a failed write is not repeated
  file_.write(bytes);
}

void TensorBoardWriter::both(const std::string& tag, double value, int64_t iteration,
                             int64_t samples) {
  scalar(tag, value, iteration);
  scalar(tag + " vs samples", value, samples);
}

void TensorBoardWriter::write(const IterationReport& report) {
  const int64_t iteration = report.iteration, samples = report.consumed_samples;
  both("learning-rate", report.learning_rate, iteration, samples);
  if (report.decoupled_learning_rate) {
    scalar("decoupled-learning-rate", *report.decoupled_learning_rate, iteration);
  }
  both("batch-size", static_cast<double>(report.global_batch_size), iteration, samples);
  for (const auto& [name, loss] : report.losses) both(name, loss, iteration, samples);
  both("loss-scale", report.loss_scale, iteration, samples);
  both("world-size", static_cast<double>(report.world_size), iteration, samples);
  if (report.grad_norm) both("grad-norm", *report.grad_norm, iteration, samples);
  if (report.num_zeros) {
    both("num-zeros", static_cast<double>(*report.num_zeros), iteration, samples);
  }
  if (report.params_norm) both("params-norm", *report.params_norm, iteration, samples);

  if (report.skipped_samples > 0) {
    scalar("skipped-train-samples", static_cast<double>(report.skipped_samples), iteration);
  }
  scalar("iteration-time", report.milliseconds / 1e3, iteration);
  if (report.tflops_per_gpu) scalar("throughput", *report.tflops_per_gpu, iteration);
  if (report.joules_per_gpu) scalar("iter-energy/gpu", *report.joules_per_gpu, iteration);
  if (report.watts_per_gpu) scalar("power/gpu", *report.watts_per_gpu, iteration);
  if (report.tokens_per_second) scalar("tokens-per-second", *report.tokens_per_second, iteration);
  if (report.mfu) scalar("mfu", *report.mfu, iteration);
  // Megatron's tags for losses; the others are ours.
  const auto routers = [&](const RouterReport& report, const std::string& prefix,
                           const std::string& suffix) {
    for (const auto& [name, loss] : report.losses) scalar(prefix + name + suffix, loss, iteration);
    scalar("moe/expert_load_max" + suffix, report.most, iteration);
    scalar("moe/expert_load_min" + suffix, report.fewest, iteration);
    scalar("moe/router_entropy" + suffix, report.entropy, iteration);
    scalar("moe/dropped_share" + suffix, report.dropped, iteration);
    for (size_t expert = 0; expert < report.loads.size(); ++expert)
      scalar(fmt::format("moe/expert_load{}_expert_{}", suffix, expert), report.loads[expert],
             iteration);
  };
  if (report.routers) routers(*report.routers, "", "");
  for (const auto& [layer, of_layer] : report.router_layers)
    routers(of_layer, "moe/", fmt::format("_layer_{}", layer));
  flush();
}

void TensorBoardWriter::write(const ValidationReport& report) {
  for (const auto& [name, loss] : report.losses) {
    const std::string tag = name + " validation" + report.suffix;
    both(tag, loss, report.iteration, report.consumed_samples);
    both(tag + " ppl", perplexity(loss), report.iteration, report.consumed_samples);
  }
  flush();
}

}  // namespace phx
