#include "phalanx/checkpoint/parameter_boxes.h"

#include <algorithm>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"

namespace phx {

namespace {

std::vector<int64_t> shape_of(const Parameter& parameter) {
  const auto dims = parameter.spec().global_shape.dims();
  return {dims.begin(), dims.end()};
}

// Rows and columns of a piece, as a box of its parameter and a place in a flat buffer.
class BoxMaker {
 public:
  BoxMaker(const ParameterStore& store, size_t index, const FlatState& state,
           std::vector<LocalBox>& boxes)
      : parameter_(*store.parameters()[index]),
        begin_(store.offset_of(index)),
        state_(state),
        boxes_(boxes) {}

  // What the range of the store covers of the piece: a part of a row, whole rows, a part of a row.
  void add(const Piece& piece, const FlatRange& range, int64_t shift) {
    const int64_t width = parameter_.local_columns();
    // In elements of the piece's rows: row r of it lies at first + r * width, and has cols
    // elements.
    const int64_t first = begin_ + piece.local_row * width + piece.local_col;
    const auto covered = [&](int64_t row) -> FlatRange {
      const int64_t at = first + row * width;
      const int64_t from = std::max(at, range.offset), to = std::min(at + piece.cols, range.end());
      return {from - at, to - from};
    };
    int64_t row = std::clamp<int64_t>((range.offset - first) / width - 1, 0, piece.rows);
    const int64_t last = std::clamp<int64_t>((range.end() - first) / width + 1, 0, piece.rows);
    while (row < last) {
      const FlatRange columns = covered(row);
      int64_t rows = 1;
      if (columns.count == piece.cols) {
        // Rows below that the range covers wholly too.
        const int64_t end = (range.end() - first - piece.cols) / width + 1;
        rows = std::max<int64_t>(std::min(end, piece.rows) - row, 1);
      }
      if (columns.count > 0) put(piece, {row, rows}, columns, shift);
      row += rows;
    }
  }

 private:
  void put(const Piece& piece, const FlatRange& rows, const FlatRange& columns, int64_t shift) {
    const int64_t width = parameter_.local_columns();
    const int64_t row = piece.global_row + rows.offset, column = piece.global_col + columns.offset;
    LocalBox box{.name = state_.prefix + parameter_.name(),
                 .info = {state_.flat.dtype(), shape_of(parameter_)},
                 .box = {},
                 .flat = state_.flat,
                 .offset = begin_ + (piece.local_row + rows.offset) * width + piece.local_col +
                           columns.offset + shift,
                 .pitch = width,
                 .rows = rows.count,
                 .cols = columns.count};
    if (box.info.shape.size() == 1) {
      box.box = {{row}, {rows.count}};
    } else {
      box.box = {{row, column}, {rows.count, columns.count}};
    }
    boxes_.push_back(std::move(box));
  }

  const Parameter& parameter_;
  int64_t begin_;
  const FlatState& state_;
  std::vector<LocalBox>& boxes_;
};

}  // namespace

std::vector<LocalBox> boxes_of(const ParameterStore& store, const FlatState& state,
                               std::span<const FlatRange> ranges,
                               const std::function<bool(const Parameter&)>& picked) {
  const FlatRange all = store.all();
  const std::span<const FlatRange> held =
      state.ranges.empty() ? std::span(&all, 1) : std::span<const FlatRange>(state.ranges);
  std::vector<LocalBox> boxes;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    const Parameter& parameter = *store.parameters()[i];
    if (picked && !picked(parameter)) continue;
    const FlatRange own = store.range_of(i);
    BoxMaker maker(store, i, state, boxes);
    int64_t in_state = 0;  // where the held range begins in the state's buffer
    for (const FlatRange& range : held) {
      for (const FlatRange& wanted : intersection(ranges, {&range, 1}))
        for (const FlatRange& part : intersection({&own, 1}, {&wanted, 1}))
          for (const Piece& piece : parameter.spec().pieces)
            maker.add(piece, part, in_state - range.offset);
      in_state += range.count;
    }
  }
  return boxes;
}

FlatRange share_of(const ParameterStore& store, int rank, int size) {
  const auto cut = [&](int part) {
    if (part == size) return store.all().end();
    const int64_t at = store.all().end() / size * part;
    for (size_t i = store.parameters().size(); i-- > 0;) {
      const FlatRange range = store.range_of(i);
      if (range.offset > at) continue;
      if (at >= range.end()) return at;  // between two parameters
      const int64_t width = store.parameters()[i]->local_columns();
      return range.offset + (at - range.offset) / width * width;
    }
    return int64_t{0};
  };
  const int64_t begin = cut(rank);
  return {begin, cut(rank + 1) - begin};
}

TensorInfos tensors_of(const ParameterStore& store, std::span<const FlatState> states) {
  TensorInfos infos;
  for (const FlatState& state : states)
    for (const Parameter* parameter : store.parameters())
      infos[state.prefix + parameter->name()] = {state.flat.dtype(), shape_of(*parameter)};
  return infos;
}

namespace {

// f(offset in the global bytes, offset in the local bytes, bytes) for every row of every piece.
template <class F>
void for_rows(const Parameter& parameter, int64_t element, F&& f) {
  for (const Piece& piece : parameter.spec().pieces) {
    for (int64_t row = 0; row < piece.rows; ++row) {
      const int64_t global = (piece.global_row + row) * parameter.columns() + piece.global_col;
      const int64_t local = (piece.local_row + row) * parameter.local_columns() + piece.local_col;
      f(global * element, local * element, piece.cols * element);
    }
  }
}

}  // namespace

std::vector<std::byte> to_global(const Parameter& parameter, const Tensor& local) {
  std::vector<std::byte> from(local.bytes());
  copy_to_host(local, from.data());
  const int64_t element = size_of(local.dtype());
  std::vector<std::byte> to(parameter.spec().global_shape.numel() * element);
  for_rows(parameter, element, [&](int64_t global_at, int64_t local_at, int64_t bytes) {
    std::memcpy(to.data() + global_at, from.data() + local_at, bytes);
  });
  return to;
}

void from_global(const Parameter& parameter, std::span<const std::byte> global, Tensor& local) {
  const int64_t element = size_of(local.dtype());
  PHX_ASSERT(int64_t(global.size()) == parameter.spec().global_shape.numel() * element,
             "wrong size for ", parameter.name());
  std::vector<std::byte> to(local.bytes());  // zero: padding rows
  for_rows(parameter, element, [&](int64_t global_at, int64_t local_at, int64_t bytes) {
    std::memcpy(to.data() + local_at, global.data() + global_at, bytes);
  });
  copy_from_host(local, to.data());
  local.runtime().synchronize();  // `to` ends here
}

}  // namespace phx
