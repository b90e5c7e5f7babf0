#include "phalanx/report/log_line.h"

#include <fmt/format.h>

#include <ctime>

namespace phx {

std::string time_stamp(std::chrono::system_clock::time_point time) {
  using namespace std::chrono;
  const auto second = floor<seconds>(time);
  const int64_t micros = duration_cast<microseconds>(time - second).count();
  const std::time_t clock = system_clock::to_time_t(second);
  std::tm parts{};
  ::localtime_r(&clock, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{}.{:06d}", text, micros);
}

std::string log_line(const IterationReport& report, const std::string& stamp) {
  std::string line = fmt::format(" [{}]", stamp);
  const auto add = [&line]<class... T>(fmt::format_string<const T&...> format, const T&... values) {
    line += fmt::format(format, values...);
  };
  add(" iteration {:8d}/{:8d} |", report.iteration, report.train_iterations);
  add(" consumed samples: {:12d} |", report.consumed_samples);
  if (report.skipped_samples > 0) add(" skipped samples: {:12d} |", report.skipped_samples);
  add(" elapsed time per iteration (ms): {:.1f} |", report.milliseconds);
  if (report.tflops_per_gpu) {
    add(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", *report.tflops_per_gpu);
  }
  if (report.joules_per_gpu) add(" energy per GPU (J/iter/GPU): {:.1f} |", *report.joules_per_gpu);
  if (report.watts_per_gpu) add(" power per GPU (W/GPU): {:.1f} |", *report.watts_per_gpu);
  add(" learning rate: {:.6E} |", report.learning_rate);
  if (report.decoupled_learning_rate) {
    add(" decoupled learning rate: {:.6E} |", *report.decoupled_learning_rate);
  }
  add(" global batch size: {:5d} |", report.global_batch_size);
  for (const auto& [name, loss] : report.losses) {
    if (!(loss < 0.)) add(" {}: {:.6E} |", name, loss);  // a NaN is shown
  }
  if (report.routers)
    for (const auto& [name, loss] : report.routers->losses) add(" {}: {:.6E} |", name, loss);
  add(" loss scale: {:.1f} |", report.loss_scale);
  if (report.grad_norm) add(" grad norm: {:.3f} |", *report.grad_norm);
  if (report.num_zeros) add(" num zeros: {} |", *report.num_zeros);
  if (report.params_norm) add(" params norm: {:.3f} |", *report.params_norm);
  add(" number of skipped iterations: {:3d} |", report.skipped_iterations);
  add(" number of nan iterations: {:3d} |", report.nan_iterations);
  if (report.tokens_per_second) add(" tokens per second: {:.1f} |", *report.tokens_per_second);
  if (report.mfu) add(" MFU: {:.1f}% |", *report.mfu * 100.);
  if (report.routers) {
    const RouterReport& routers = *report.routers;
    add(" expert load: {:.2f} to {:.2f} of the mean |", routers.fewest, routers.most);
    add(" router entropy: {:.3f} |", routers.entropy);
    if (routers.dropped > 0) add(" dropped: {:.2f}% |", routers.dropped * 100.);
  }
  return line;
}

std::string validation_block(const ValidationReport& report) {
  std::string line = fmt::format(" validation loss at iteration {}{}{} | ", report.iteration,
                                 report.where.empty() ? "" : " ", report.where);
  for (const auto& [name, loss] : report.losses) {
    line += fmt::format("{}{} value: {:.6E} | {}{} PPL: {:.6E} | ", name, report.suffix, loss, name,
                        report.suffix, perplexity(loss));
  }
  const std::string dashes(line.size(), '-');
  return dashes + '\n' + line + '\n' + dashes;
}

}  // namespace phx
