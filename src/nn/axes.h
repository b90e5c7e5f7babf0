// The axes of the mesh of ranks, and how a parameter relates to them. This is all that a parameter
// says about ranks: who reduces, counts, saves and shards it follows from it
// (parallel/ownership.h).
#pragma once

#include <cstdint>
#include <initializer_list>

namespace phx {

// On the expert grid `tp` is the experts' tensor parallelism and `dp` the ranks that hold the same
// experts; `cp` has one rank there. On the dense grid `ep` has one.
enum class Axis : uint8_t { tp, cp, ep, dp, pp };
inline constexpr std::initializer_list<Axis> kAllAxes = {Axis::tp, Axis::cp, Axis::ep, Axis::dp,
                                                         Axis::pp};
constexpr const char* name_of(Axis axis) {
  constexpr const char* kNames[] = {"tp", "cp", "ep", "dp", "pp"};
  return kNames[int(axis)];
}

// A set of axes.
class Axes {
 public:
  constexpr Axes() = default;
  constexpr Axes(std::initializer_list<Axis> axes) {
    for (const Axis axis : axes) add(axis);
  }
  constexpr void add(Axis axis) { bits_ |= 1u << int(axis); }
  constexpr bool has(Axis axis) const { return (bits_ >> int(axis) & 1u) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Axes with(Axis axis) const {
    Axes more = *this;
    more.add(axis);
    return more;
  }
  constexpr Axes without(Axis axis) const {
    Axes less = *this;
    less.bits_ &= ~(1u << int(axis));
    return less;
  }
  constexpr bool operator==(const Axes&) const = default;

 private:
  uint32_t bits_ = 0;
};

// The two ways to number the ranks of one world: dense layers use (tp, cp, dp, pp), experts use
// (tp, ep, dp, pp).
enum class Grid : uint8_t { dense, expert };

struct ParameterAxes {
  Grid grid = Grid::dense;
  // Every rank along these has a part of its own. pp: one stage has the layer.
  Axes cut = {Axis::pp};
  // The ranks along these all have it and each sees only some of the tokens, positions or heads
  // that it is used on: the gradient is the sum of theirs. pp: several stages have it (an embedding
  // that is tied to the head, or that multi-token prediction uses too).
  Axes partial = {Axis::dp, Axis::cp};
  // Along every other axis ranks have the same weight and compute the same gradient.

  bool on_several_stages() const { return partial.has(Axis::pp); }
};

// Cut over the tensor-parallel ranks, as the big matrices are.
constexpr ParameterAxes cut_over_tp() { return {.cut = {Axis::tp, Axis::pp}}; }
// Whole on every tensor-parallel rank, with the same gradient or a part of it on each.
constexpr ParameterAxes same_over_tp() { return {}; }
// The same on several stages instead of one, which use it on different layers' behalf.
constexpr ParameterAxes on_several_stages(ParameterAxes axes) {
  axes.cut = axes.cut.without(Axis::pp);
  axes.partial.add(Axis::pp);
  return axes;
}
constexpr ParameterAxes partial_over_tp() { return {.partial = {Axis::tp, Axis::dp, Axis::cp}}; }

}  // namespace phx
