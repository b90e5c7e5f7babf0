#include "phalanx/train/batch_schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"

namespace phx {

namespace {

constexpr const char* kFlag = "--step-batch-size-schedule";
constexpr double kMostTokens = 1e18;  // 64 bits hold them
constexpr int64_t kLargestBatch = 1 << 24;

// "250B" -> 250,000,000,000. Nothing if it is not a whole number from 0 on.
std::optional<int64_t> number(std::string_view text) {
  double unit = 1;
  if (!text.empty()) {
    const std::string_view suffixes = "KMBTkmbt";
    const size_t found = suffixes.find(text.back());
    if (found != suffixes.npos) {
      unit = std::pow(1e3, double(found % 4 + 1));
      text.remove_suffix(1);
    }
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  value *= unit;
  // 2.3 * 1e9 is 2299999999.9999995: what a double cannot tell from a whole number is one.
  const double whole = std::round(value);
  if (!(whole >= 0 && whole <= kMostTokens) || std::abs(value - whole) > 1e-15 * whole)
    return std::nullopt;
  return int64_t(whole);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> entries;
  constexpr const char* kBetween = " ,\t\n";
  for (size_t at = text.find_first_not_of(kBetween); at != text.npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    entries.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBetween, end);
  }
  return entries;
}

class Parser {
 public:
  explicit Parser(int64_t seq_length) : seq_length_(seq_length) {}

  void run(std::string_view text) {
    for (std::string_view entry : split(text)) add(entry);
    if (steps.empty() && problems.empty()) wrong("has no entries", "e.g. \"0:768 250B:1536\"");
  }

  std::vector<BatchSchedule::Step> steps;
  Problems problems;

 private:
  void add(std::string_view entry) {
    const size_t colon = entry.find(':');
    const std::string_view size_text = colon == entry.npos ? "" : entry.substr(colon + 1);
    const auto tokens = number(entry.substr(0, colon)), size = number(size_text);
    if (!tokens || !size)
      return wrong(str_cat("\"", entry, "\" is not TOKENS:SIZE"),
                   "e.g. 250B:1536; K, M, B and T are 1e3, 1e6, 1e9 and 1e12");
    if (*size < 1 || *size > kLargestBatch)
      return wrong(str_cat("the size of \"", entry, "\" should be between 1 and ", kLargestBatch),
                   "");
    const int64_t from = *tokens / seq_length_;
    if (before_.empty()) {
      if (*tokens != 0)
        wrong(str_cat("the first entry is \"", entry, "\", but a run begins with 0 tokens"),
              str_cat("0:", *size));
    } else if (*tokens <= tokens_before_) {
      wrong(str_cat("\"", entry, "\" should come later than \"", before_, "\""),
            "thresholds rise from entry to entry");
    } else if (from == steps.back().from) {
      wrong(str_cat("\"", before_, "\" and \"", entry, "\" begin with the same sample, number ",
                    from, " of --seq-length ", seq_length_),
            "leave one of them out");
    }
    before_ = entry;
    tokens_before_ = *tokens;
    steps.push_back({from, *size});
  }

  void wrong(std::string text, std::string hint) {
    problems.push_back({ProblemKind::rule, kFlag, str_cat(kFlag, ": ", text), std::move(hint)});
  }

  int64_t seq_length_;
  std::string_view before_;  // the last entry that could be read
  int64_t tokens_before_ = 0;
};

}  // namespace

BatchSchedule BatchSchedule::constant(int64_t size) { return BatchSchedule({{0, size}}); }

BatchSchedule BatchSchedule::parse(std::string_view text, int64_t seq_length) {
  Parser parser(seq_length);
  parser.run(text);
  PHX_CHECK(parser.problems.empty(), "the batch size has no schedule\n",
            format_problems(parser.problems));
  return BatchSchedule(std::move(parser.steps));
}

Problems BatchSchedule::problems(std::string_view text, int64_t seq_length) {
  Parser parser(seq_length);
  parser.run(text);
  return std::move(parser.problems);
}

BatchSchedule::Stretch BatchSchedule::stretch_at(int64_t consumed) const {
  const auto next = std::ranges::upper_bound(steps_, consumed, {}, &Step::from);
  const int64_t size = std::prev(next)->size;
  if (next == steps_.end()) return {size, std::numeric_limits<int64_t>::max()};
  return {size, ceil_div(next->from - consumed, size)};  // the last one may reach beyond
}

int64_t BatchSchedule::size_at(int64_t consumed) const { return stretch_at(consumed).size; }

int64_t BatchSchedule::largest() const { return *sizes().rbegin(); }

std::set<int64_t> BatchSchedule::sizes() const {
  std::set<int64_t> sizes;
  for (const Step& step : steps_) sizes.insert(step.size);
  return sizes;
}

int64_t BatchSchedule::after(int64_t consumed, int64_t iterations) const {
  while (iterations > 0) {
    const Stretch here = stretch_at(consumed);
    const int64_t count = std::min(iterations, here.iterations);
    consumed += count * here.size;
    iterations -= count;
  }
  return consumed;
}

int64_t BatchSchedule::iterations_within(int64_t samples) const {
  for (int64_t consumed = 0, iterations = 0;;) {
    const Stretch here = stretch_at(consumed);
    const int64_t fit = (samples - consumed) / here.size;
    if (fit < here.iterations) return iterations + fit;
    consumed += here.iterations * here.size;
    iterations += here.iterations;
  }
}

}  // namespace phx
