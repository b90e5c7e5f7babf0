#include "phalanx/base/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace phx {
namespace {

// Three significant digits, in the largest unit that leaves at least 1 of it. The value is compared
// as it will be printed: 1023.999 KiB is 1.00 MiB, not 1024 KiB.
std::string in_units(double value, double step, std::span<const char* const> units) {
  const auto digits = [](double v) {
    const double size = std::abs(v);
    return size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  };
  size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= step - 0.5) {
    value /= step;
    ++unit;
  }
  if (unit == 0) return fmt::format("{:.0f}{}", value, units[0]);
  return fmt::format("{:.{}f}{}", value, digits(value), units[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  constexpr std::array kUnits = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  return in_units(static_cast<double>(bytes), 1024., kUnits);
}

std::string format_count(double count) {
  constexpr std::array kUnits = {"", " k", " M", " B", " T"};
  return in_units(count, 1000., kUnits);
}

std::string format_thousands(int64_t number) {
  std::string text = fmt::format("{}", number);
  const int first = number < 0 ? 1 : 0;
  for (int at = static_cast<int>(text.size()) - 3; at > first; at -= 3) text.insert(at, 1, ',');
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0.) return "-" + format_duration(-seconds);
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = std::llround(seconds);
  const int64_t minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (hours == 0) return fmt::format("{} min {:02d} s", minutes, whole % 60);
  if (days == 0) return fmt::format("{} h {:02d} min", hours, minutes % 60);
  return fmt::format("{} d {:02d} h", days, hours % 24);
}

std::string printable(std::string_view text) {
  constexpr size_t kMost = 120;
  std::string result(text.substr(0, kMost));
  if (text.size() > kMost) result += "...";
  std::ranges::replace_if(
      result, [](unsigned char c) { return c < 32 || c == 127; }, '?');
  return result;
}

}  // namespace phx
