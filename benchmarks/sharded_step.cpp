// What sharding costs a step: one data-parallel rank of many on one GPU, without the others, over a
// wire of a given rate (plan/rehearsal_world.h). Prints a table of the strategies, each beside the
// sharded optimizer alone, the host's time for each unit, and when units were gathered.
//
//   bench_sharded_step [case] [--ranks N] [--gb-s RATE,RATE...] [--steps N]
//
// A rate is what a rank sends in a second, in GB; 0 is a wire that takes no time. On a laptop:
// bench_sharded_step tiny --device cpu.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gpu_cases.h"
#include "phalanx/base/error.h"
#include "phalanx/core/op_trace.h"
#include "phalanx/plan/rehearsal_world.h"
#include "random_tokens.h"

using namespace phx;

namespace {

struct Settings {
  std::string name = "llama8b_8L", device = "cuda";
  int ranks = 8, steps = 10;
  std::vector<double> gb_s = {0, 400, 45};
};

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr Case kTiny = {"tiny", 4, 128, 4, 2, 32, 384, 512, 128, 2, false};

Case case_of(const std::string& name) {
  if (name == kTiny.name) return kTiny;
  for (const Case& of : kCases)
    if (name == of.name) return of;
  throw_error(str_cat("there is no case ", name));
}

RunConfig sharded(const Case& of, int ranks, Sharding sharding) {
  RunConfig config = config_of(of);
  config.train.global_batch_size = of.micro_batch * ranks;
  if (sharding == Sharding::optim) {
    config.parallel.use_distributed_optimizer = true;
    config.parallel.overlap_grad_reduce = config.parallel.overlap_param_gather = true;
  } else {
    config.parallel.use_megatron_fsdp = true;
    config.parallel.data_parallel_sharding_strategy = sharding;
  }
  return config;
}

// Whether units were gathered while another one was in use, and how long the device waited for
// those that came late.
struct Gathers {
  int count = 0, ahead = 0;
  double late_ms = 0;  // all together
  double host_us = 0;  // the median of what the host takes for one, tracing included
};

Gathers gathers_of(const std::vector<OpRecord>& records) {
  std::vector<OpRecord> marks;
  for (const OpRecord& record : records)
    if (record.kind == OpKind::phase && record.name.find("unit ") != std::string::npos)
      marks.push_back(record);
  std::stable_sort(marks.begin(), marks.end(), [](const OpRecord& a, const OpRecord& b) {
    return a.host_begin_ms < b.host_begin_ms;
  });
  Gathers found;
  std::vector<double> host_us;
  std::string in_use;
  for (size_t i = 0; i < marks.size(); ++i) {
    const std::string& name = marks[i].name;
    if (name.starts_with("unit ")) {
      in_use = name;
      continue;
    }
    const std::string unit = name.substr(name.find("unit "));
    ++found.count;
    host_us.push_back((marks[i].host_end_ms - marks[i].host_begin_ms) * 1e3);
    if (unit != in_use) ++found.ahead;
    const auto use = std::find_if(marks.begin() + int64_t(i), marks.end(),
                                  [&](const OpRecord& mark) { return mark.name == unit; });
    if (unit != in_use && use != marks.end())
      found.late_ms += std::max(0.0, marks[i].end_ms - use->begin_ms);
  }
  if (host_us.empty()) return found;
  const auto middle = host_us.begin() + int64_t(host_us.size() / 2);
  std::nth_element(host_us.begin(), middle, host_us.end());
  found.host_us = *middle;
  return found;
}

struct Measured {
  double step_ms = 0, host_ms = 0, peak_gib = 0, sent_ms = 0;
  int transfers = 0;
  Gathers gathers;
};

Measured measure(const Case& of, const Settings& settings, Sharding sharding, double gb_s) {
  const bool on_gpu = settings.device == "cuda";
  Runtime runtime({.kind = on_gpu ? DeviceKind::cuda : DeviceKind::cpu});
  RunConfig config = sharded(of, settings.ranks, sharding);
  RehearsalWorld world(0, settings.ranks, {.bytes_per_second = gb_s * 1e9});
  const Mesh mesh(world, make_layout(config.layout(), settings.ranks).mesh);
  Sources sources(config);
  sources.train = std::make_shared<RandomTokens>(of.vocab, of.seq);
  Session session(config, sources, runtime.device(), mesh);
  int64_t step = 0;
  double host_ms = 0;
  const auto take_step = [&] {
    session.load_batch(step * of.micro_batch * settings.ranks);
    ++step;
    const auto start = Clock::now();
    session.step.run(session.train_batches,
                     {.iteration = step, .update = step, .lr = 1e-4, .weight_decay = 0.1});
    host_ms += ms_since(start);
    if (session.step.pending() > 1) session.step.collect();
  };
  const auto drain = [&] {
    while (session.step.pending() > 0) session.step.collect();
    runtime.synchronize();
  };
  Measured found;
  for (int i = 0; i < 5; ++i) take_step();
  drain();
  const auto start = Clock::now();
  for (int i = 0; i < settings.steps; ++i) take_step();
  runtime.synchronize();
  found.step_ms = ms_since(start) / settings.steps;
  drain();
  host_ms = 0;  // of steps that wait for nothing: each begins on an idle device
  for (int i = 0; i < 3; ++i) {
    take_step();
    drain();
  }
  found.host_ms = host_ms / 3;
  found.peak_gib = double(runtime.allocator().report().peak_total) / double(1 << 30);
  OpTrace trace(runtime);
  take_step();
  drain();
  const std::vector<OpRecord> records = trace.collect();
  found.gathers = gathers_of(records);
  for (const OpRecord& record : records) {
    if (record.kind != OpKind::communication) continue;
    ++found.transfers;
    found.sent_ms += record.end_ms - record.begin_ms;
  }
  return found;
}

void run(const Settings& settings) {
  const Case of = case_of(settings.name);
  const std::pair<const char*, Sharding> strategies[] = {
      {"optim", Sharding::optim},
      {"optim_grads", Sharding::optim_grads},
      {"optim_grads_params", Sharding::optim_grads_params}};
  for (const double gb_s : settings.gb_s) {
    if (gb_s > 0)
      std::printf("%s, rank 0 of %d, a wire of %g GB/s\n", of.name, settings.ranks, gb_s);
    else
      std::printf("%s, rank 0 of %d, a wire that takes no time\n", of.name, settings.ranks);
    std::optional<Measured> base;
    for (const auto& [name, sharding] : strategies) {
      const Measured m = measure(of, settings, sharding, gb_s);
      if (!base) base = m;
      std::printf(
          "  %-20s %8.1f ms a step (%.3f x)  peak %6.1f GiB  on the wire %7.1f ms in %d transfers  "
          "host %5.1f ms",
          name, m.step_ms, m.step_ms / base->step_ms, m.peak_gib, m.sent_ms, m.transfers,
          m.host_ms);
      if (m.transfers > base->transfers)
        std::printf(", %.0f us for a transfer more than optim",
                    (m.host_ms - base->host_ms) * 1e3 / (m.transfers - base->transfers));
      if (m.gathers.count > 0)
        std::printf(
            "\n%23s%d gathers, %d of them while an earlier unit was in use; the device waited %.1f "
            "ms "
            "for them; the host takes %.0f us for one",
            "", m.gathers.count, m.gathers.ahead, m.gathers.late_ms, m.gathers.host_us);
      std::printf("\n");
      std::fflush(stdout);
    }
  }
}

}  // namespace

int main(int argc, char** argv) try {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--ranks" && more) {
      settings.ranks = std::atoi(argv[++i]);
    } else if (arg == "--steps" && more) {
      settings.steps = std::atoi(argv[++i]);
    } else if (arg == "--device" && more) {
      settings.device = argv[++i];
    } else if (arg == "--gb-s" && more) {
      settings.gb_s.clear();
      std::stringstream list(argv[++i]);
      for (std::string rate; std::getline(list, rate, ',');)
        settings.gb_s.push_back(std::atof(rate.c_str()));
    } else {
      settings.name = arg;
    }
  }
  run(settings);
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
