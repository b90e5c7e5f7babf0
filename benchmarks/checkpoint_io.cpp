// How fast checkpoints are saved and loaded, beside a plain large write and read of the same bytes
// on the same disk; how long a background save holds up the caller; how much memory a load takes.
//
// The plain write is one thread with large writes through the page cache that starts the disk early
// and syncs; the plain read one thread with large reads. A save makes checksums and commits as
// well, a load checks the checksums; neither goes through the page cache where it need not.
//
// A background save holds up the first update behind it until the state is copied. In training a
// forward and a backward come between the two, so the goal for the stall is about the update that
// comes after a step's time; the one right after begin(), which waits for a copy of all of the
// state from memory to memory, is shown as the worst case, beside a plain copy of the same bytes.
//
//   bench_checkpoint_io [FOLDER] [MEGABYTES]
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/loader.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/nn/parameter_store.h"
#include "saved_layers.h"

namespace phx {
namespace {

constexpr int kRounds = 5;

// Time on the clock, and of processors: on a machine with other work only the second one is ours.
struct Time {
  double wall = 0, processors = 0;
};

double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& time) {
    return double(time.tv_sec) + double(time.tv_usec) * 1e-6;
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

Time timed(const std::function<void()>& f) {
  const double before = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  f();
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return {wall, processor_seconds() - before};
}

Time median(std::vector<Time> times) {
  const auto middle = [&](double Time::*which) {
    std::sort(times.begin(), times.end(),
              [&](const Time& a, const Time& b) { return a.*which < b.*which; });
    return times[times.size() / 2].*which;
  };
  return {middle(&Time::wall), middle(&Time::processors)};
}

// Medians of two things that are done in turns: a disk that others use too is uneven, but as uneven
// for both.
std::pair<Time, Time> medians(const std::function<Time()>& plain,
                              const std::function<Time()>& ours) {
  std::vector<Time> a, b;
  for (int i = 0; i < kRounds; ++i) {
    ::sync();  // what was written before is not waited for here
    a.push_back(plain());
    ::sync();
    b.push_back(ours());
  }
  return {median(a), median(b)};
}

Time median_of(const std::function<void()>& f) {
  std::vector<Time> times;
  for (int i = 0; i < kRounds; ++i) times.push_back(timed(f));
  return median(times);
}

void drop_cached(const Path& path) {  // so that the next read comes from the disk
  const FileHandle file(::open(path.c_str(), O_RDONLY));
  ::fsync(file.get());
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

int64_t resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

constexpr size_t kPlainWrite = 8 << 20;

Time plain_write(const Path& path, std::span<const std::byte> bytes) {
  return timed([&] {
    AtomicFile file(path);
    for (size_t at = 0; at < bytes.size(); at += kPlainWrite)
      file.write(bytes.subspan(at, std::min(kPlainWrite, bytes.size() - at)));
    file.commit();
  });
}

Time plain_read(const Path& path, std::span<std::byte> into) {
  return timed([&] {
    const FileHandle file(::open(path.c_str(), O_RDONLY));
    for (size_t at = 0; at < into.size();) {
      const ssize_t n =
          ::pread(file.get(), into.data() + at, std::min(kPlainWrite, into.size() - at), off_t(at));
      if (n <= 0) std::abort();
      at += size_t(n);
    }
  });
}

void line(const char* what, const Time& time, double bytes, const std::string& beside = "") {
  fmt::print("{:<44} {:>8.3f} s {:>8.2f} GB/s {:>8.3f} s of processors  {}\n", what, time.wall,
             bytes / time.wall / 1e9, time.processors, beside);
}

void run(const Path& folder, int64_t megabytes) {
  make_folder(folder);
  Runtime runtime({.threads = int(std::max(1u, std::thread::hardware_concurrency()))});
  Layers model(megabytes * 1'000'000 / 4);
  ParameterStore store(model, runtime.device(), {.gradients = false});
  auto* data = static_cast<uint32_t*>(store.weights().raw());
  for (int64_t i = 0; i < store.weights().numel(); ++i) data[i] = uint32_t(i) * 2654435761u;
  const std::span<std::byte> memory(static_cast<std::byte*>(store.weights().raw()),
                                    size_t(store.weights().bytes()));
  const double bytes = double(memory.size());
  const FlatState state{"", store.weights()};
  const FlatRange all = store.all();
  const auto boxes = [&] { return boxes_of(store, state, {&all, 1}); };
  fmt::print("{} tensors, {:.0f} MB, in {}; medians of {} rounds\n", store.parameters().size(),
             bytes / 1e6, folder.string(), kRounds);

  const Path plain = folder / "plain";
  const Path saves = folder / "saves";
  CheckpointSaver saver({.folder = saves, .ring_bytes = int64_t{4} << 30});
  const auto [written, saved] = medians(
      [&] {
        std::filesystem::remove(plain);
        return plain_write(plain, memory);
      },
      [&] {
        std::filesystem::remove_all(saves);
        return timed([&] {
          saver.begin(1, boxes(), {});
          saver.wait();
        });
      });
  line("plain write and sync", written, bytes);
  line("save, checksums and commit included", saved, bytes,
       fmt::format("{:.0f}% of plain (goal 80%)", 100 * written.wall / saved.wall));
  {
    const std::vector<std::byte> from(memory.begin(), memory.end());
    line("copy in memory, one thread",
         median_of([&] { std::memcpy(memory.data(), from.data(), memory.size()); }), bytes);
  }
  // A step goes on meanwhile; its update waits for copies.
  for (const double step : {0.0, 0.25, 0.5, 1.0}) {
    std::vector<Time> stalls;
    for (int i = 0; i < kRounds; ++i) {
      stalls.push_back(timed([&] { saver.begin(1, boxes(), {}, SaveMode::background); }));
      std::this_thread::sleep_for(std::chrono::duration<double>(step));
      stalls.back().wall += timed([&] { saver.wait_for_copies(); }).wall;
      saver.wait();
    }
    fmt::print("{:<44} {:>8.4f} s  {:.1f}% of a synchronous save ({})\n",
               fmt::format("stall of a background save, update after {} s", step),
               median(stalls).wall, 100 * median(stalls).wall / saved.wall,
               step == 0 ? "the worst case: no step in between" : "goal 5%");
  }

  const Path shard = checkpoint_path(saves, 1) / "shard_00000.safetensors";
  const auto load = [&] {
    load_parameters(NativeCheckpoint(checkpoint_path(saves, 1), Readers::one), store, {&state, 1});
  };
  const auto prepare = [&](const Path& path, bool cold) {
    cold ? drop_cached(path) : void(plain_read(path, memory));
  };
  for (const bool cold : {true, false}) {
    const auto [read, loaded] = medians(
        [&] {
          prepare(plain, cold);
          return plain_read(plain, memory);
        },
        [&] {
          prepare(shard, cold);
          std::memset(memory.data(), 0, memory.size());
          return timed(load);
        });
    line(cold ? "plain read, from the disk" : "plain read, from the page cache", read, bytes);
    line(cold ? "load, from the disk" : "load, from the page cache", loaded, bytes,
         fmt::format("{:.0f}% of plain{}", 100 * read.wall / loaded.wall,
                     cold ? " (goal 80%)" : ""));
  }
  for (int64_t i = 0; i < store.weights().numel(); ++i)
    if (data[i] != uint32_t(i) * 2654435761u) {
      fmt::print("element {} is not what was saved\n", i);
      std::exit(1);
    }
  reset_peak();
  const int64_t before = resident_peak();
  load();
  fmt::print("{:<44} {:>8.1f} MB beside the rank's own (goal 256)\n", "peak memory of a load",
             double(resident_peak() - before) / 1e6);
  std::filesystem::remove_all(saves);
  std::filesystem::remove(plain);
}

}  // namespace
}  // namespace phx

int main(int argc, char** argv) {
  phx::run(argc > 1 ? argv[1] : "checkpoint_io", argc > 2 ? std::atoll(argv[2]) : 1000);
  return 0;
}
