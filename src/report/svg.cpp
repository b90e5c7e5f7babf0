#include "phalanx/report/svg.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "phalanx/base/error.h"

namespace phx {
namespace {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else if (c == '"') {
      result += "&quot;";
    } else {
      result += c;
    }
  }
  return result;
}

// A tenth of a pixel is more than one sees; "12", not "12.0" or "-0".
std::string pixels(double value) {
  PHX_ASSERT(std::isfinite(value), "a picture has no place ", value);
  const double tenths = std::round(value * 10) + 0.;
  return std::fmod(tenths, 10) == 0 ? fmt::format("{:.0f}", tenths / 10)
                                    : fmt::format("{:.1f}", tenths / 10);
}

}  // namespace

std::string svg::paler(std::string_view colour, double part) {
  PHX_ASSERT(colour.size() == 7 && colour[0] == '#', "no colour: ", colour);
  std::string result = "#";
  for (size_t at = 1; at < 7; at += 2) {
    int value = 0;
    std::from_chars(colour.data() + at, colour.data() + at + 2, value, 16);
    result += fmt::format("{:02x}", value + int((255 - value) * part));
  }
  return result;
}

SvgPicture::SvgPicture(double width, double height) {
  const std::string w = pixels(width), h = pixels(height);
  text_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"Inter, 'Helvetica Neue', Helvetica, Arial, "
      "'DejaVu Sans', sans-serif\" font-size=\"12\" fill=\"{2}\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"{3}\"/>\n",
      w, h, svg::kInk, svg::kWhite);
}

// "<element a="1" b="c"", still open.
void SvgPicture::open(std::string_view element,
                      std::initializer_list<std::pair<std::string_view, double>> numbers,
                      SvgAttributes attributes) {
  text_ += fmt::format("<{}", element);
  for (const auto& [name, value] : numbers) text_ += fmt::format(" {}=\"{}\"", name, pixels(value));
  for (const auto& [name, value] : attributes) text_ += fmt::format(" {}=\"{}\"", name, value);
}

void SvgPicture::title(double x, double y, std::string_view text) {
  this->text(x, y, text, {{"font-size", "16"}, {"font-weight", "600"}});
}

void SvgPicture::text(double x, double y, std::string_view text, SvgAttributes attributes) {
  open("text", {{"x", x}, {"y", y}}, attributes);
  text_ += fmt::format(">{}</text>\n", escaped(text));
}

void SvgPicture::line(double x1, double y1, double x2, double y2, SvgAttributes attributes) {
  open("line", {{"x1", x1}, {"y1", y1}, {"x2", x2}, {"y2", y2}}, attributes);
  text_ += "/>\n";
}

void SvgPicture::rect(double x, double y, double width, double height, SvgAttributes attributes,
                      std::string_view tip) {
  open("rect", {{"x", x}, {"y", y}, {"width", width}, {"height", height}}, attributes);
  text_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", escaped(tip));
}

void SvgPicture::circle(double x, double y, double radius, SvgAttributes attributes) {
  open("circle", {{"cx", x}, {"cy", y}, {"r", radius}}, attributes);
  text_ += "/>\n";
}

void SvgPicture::path(std::string_view commands, SvgAttributes attributes) {
  text_ += fmt::format("<path d=\"{}\"", commands);
  for (const auto& [name, value] : attributes) text_ += fmt::format(" {}=\"{}\"", name, value);
  text_ += "/>\n";
}

void SvgPicture::define(std::string_view xml) { text_ += fmt::format("<defs>{}</defs>\n", xml); }

std::string SvgPicture::finish() && { return std::move(text_) + "</svg>\n"; }

}  // namespace phx
