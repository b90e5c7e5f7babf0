// The one writer of SVG: self-contained pictures, without scripts, fonts or styles from elsewhere,
// so that they show in a README as they do in a browser. The same calls give the same bytes.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace phx {

namespace svg {
inline constexpr std::string_view kInk = "#24292f", kSoftInk = "#6e7781", kWhite = "#ffffff";
// Told apart also by those who do not tell red from green (after Okabe and Ito).
inline constexpr std::string_view kBlue = "#0072b2", kVermilion = "#d55e00", kGreen = "#009e73",
                                  kPurple = "#cc79a7", kOrange = "#e69f00", kSky = "#56b4e9",
                                  kGrey = "#555555";

// `part` of the way from the colour to white.
std::string paler(std::string_view colour, double part);
}  // namespace svg

// "stroke", "#000000" and the like; values are written as they are.
using SvgAttributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

class SvgPicture {
 public:
  SvgPicture(double width, double height);  // in pixels; a white ground

  // Coordinates are rounded to a tenth of a pixel. Texts are escaped.
  void title(double x, double y, std::string_view text);
  void text(double x, double y, std::string_view text, SvgAttributes attributes = {});
  void line(double x1, double y1, double x2, double y2, SvgAttributes attributes);
  // `tip` is shown when one points at it.
  void rect(double x, double y, double width, double height, SvgAttributes attributes,
            std::string_view tip = {});
  void circle(double x, double y, double radius, SvgAttributes attributes);
  void path(std::string_view commands, SvgAttributes attributes);
  void define(std::string_view xml);  // a pattern or gradient, for url(#id)

  std::string finish() &&;

 private:
  void open(std::string_view element,
            std::initializer_list<std::pair<std::string_view, double>> numbers,
            SvgAttributes attributes);

  std::string text_;
};

}  // namespace phx
