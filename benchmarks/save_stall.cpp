// How long an asynchronous save of a large state holds a run up, every save by itself, the first
// included: with host memory for all of the state, and with less, beside what the log of a run
// would predict. The disk is made up: large writes are dropped after their checksums, at a given
// rate, so that a state may be saved that no disk here has room for.
//
//   bench_save_stall [--device cpu|cuda] [--gib N] [--buffer-gib N] [--saves N] [--step-ms N]
//                    [--disk-gb-s N] [--folder FOLDER]
//
// A step is a sleep: the processor and the bus are the save's alone. --buffer-gib 0, the default,
// is room for all of it. The 8B model with its optimizer: --device cuda --gib 75 --step-ms 2500,
// and the same with --buffer-gib 16.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "phalanx/base/disk.h"
#include "phalanx/base/error.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/train/save_buffer.h"
#include "saved_layers.h"

namespace phx {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const auto& f) {
  const Clock::time_point start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Writes small parts only, and takes its time for large ones.
class DroppingDisk : public Disk {
 public:
  explicit DroppingDisk(double bytes_a_second) : rate_(bytes_a_second) {}

  ssize_t write_at(int descriptor, const void* data, size_t bytes, off_t offset) override {
    if (bytes < kLarge) return Disk::write_at(descriptor, data, bytes, offset);
    Clock::time_point done;
    {
      const std::lock_guard lock(mutex_);
      const auto takes = std::chrono::duration<double>(double(bytes) / rate_);
      free_at_ =
          std::max(free_at_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
      done = free_at_;
    }
    std::this_thread::sleep_until(done);
    return ssize_t(bytes);
  }
  int reserve(int, off_t) override { return 0; }

 private:
  static constexpr size_t kLarge = size_t{1} << 20;
  double rate_;
  std::mutex mutex_;
  Clock::time_point free_at_{};
};

struct Settings {
  std::string device = "cuda", folder = "save_stall";
  double gib = 75, buffer_gib = 0, step_ms = 2500, disk_gb_s = 2;
  int saves = 3;
};

void run(const Settings& settings) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  Runtime runtime({.kind = settings.device == "cpu" ? DeviceKind::cpu : DeviceKind::cuda});
  Layers model(int64_t(settings.gib * kGiB / 4));
  ParameterStore store(model, runtime.device(), {.gradients = false});
  runtime.synchronize();
  const int64_t state_bytes = store.weights().bytes();
  const int64_t buffer = settings.buffer_gib > 0 ? int64_t(settings.buffer_gib * kGiB)
                                                 : state_bytes + (int64_t{64} << 20);
  const FlatState state{"", store.weights()};
  const FlatRange all = store.all();
  const auto boxes = [&] { return boxes_of(store, state, {&all, 1}); };
  fmt::print(
      "{}\n{:.1f} GiB in {} tensors, a buffer of {:.1f} GiB, steps of {:.0f} ms, a disk of {} "
      "GB/s\n{}\n",
      runtime.description(), double(state_bytes) / kGiB, store.parameters().size(),
      double(buffer) / kGiB, settings.step_ms, settings.disk_gb_s,
      SaveBuffer{.bytes = buffer, .state = state_bytes}.text());
  const double step = settings.step_ms / 1e3;
  const double predicted =
      std::max(0.0, double(state_bytes - buffer) / (settings.disk_gb_s * 1e9) - step);

  DroppingDisk disk(settings.disk_gb_s * 1e9);
  CheckpointSaver saver({.folder = settings.folder, .ring_bytes = buffer, .disk = &disk});
  const double reserving = seconds_of([&] { saver.reserve(boxes()); });
  // A run's first save comes after many steps, which the making of the buffer takes place beside.
  const auto sleep = [](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  };
  fmt::print("the buffer's making holds the caller up for {:.1f} ms\n", 1e3 * reserving);
  sleep(4 + double(buffer) / kGiB);
  fmt::print(
      "| save | begin() | update, a step later | stall | predicted | on disk after "
      "|\n|---|---|---|---|---|---|\n");
  for (int i = 1; i <= settings.saves; ++i) {
    const Clock::time_point start = Clock::now();
    const double begin = seconds_of([&] { saver.begin(i, boxes(), {}, SaveMode::background); });
    sleep(step);
    const double update = seconds_of([&] { saver.wait_for_copies(); });
    saver.wait();
    fmt::print("| {} | {:.1f} ms | {:.1f} ms | {:.1f} ms | {:.0f} ms | {:.1f} s |\n", i,
               1e3 * begin, 1e3 * update, 1e3 * (begin + update), 1e3 * predicted,
               std::chrono::duration<double>(Clock::now() - start).count());
    std::fflush(stdout);
  }
  std::filesystem::remove_all(settings.folder);
}

}  // namespace
}  // namespace phx

int main(int argc, char** argv) {
  phx::Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    const char* value = argv[i + 1];
    if (is("--device"))
      settings.device = value;
    else if (is("--folder"))
      settings.folder = value;
    else if (is("--gib"))
      settings.gib = std::atof(value);
    else if (is("--buffer-gib"))
      settings.buffer_gib = std::atof(value);
    else if (is("--saves"))
      settings.saves = std::atoi(value);
    else if (is("--step-ms"))
      settings.step_ms = std::atof(value);
    else if (is("--disk-gb-s"))
      settings.disk_gb_s = std::atof(value);
    else {
      fmt::print(stderr,
                 "bench_save_stall: {} is unknown; see the top of benchmarks/save_stall.cpp\n",
                 argv[i]);
      return 2;
    }
  }
  phx::run(settings);
  return 0;
}
