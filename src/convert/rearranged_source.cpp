#include "phalanx/convert/rearranged_source.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"
#include "phalanx/core/shape.h"

namespace phx {
namespace {

// A transposed piece is read in slabs of about this size, so that it is never there twice.
constexpr int64_t kSlabBytes = 4 << 20;

// in [rows, cols] -> out [cols, rows], whose rows are `stride` elements apart.
template <class Word>
void transpose_words(const std::byte* in, int64_t rows, int64_t cols, std::byte* out,
                     int64_t stride) {
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(out + (c * stride + r) * int64_t(sizeof(Word)),
                  in + (r * cols + c) * int64_t(sizeof(Word)), sizeof(Word));
}

void transpose(const std::byte* in, int64_t rows, int64_t cols, int64_t element, std::byte* out,
               int64_t stride) {
  switch (element) {
    case 1:
      return transpose_words<uint8_t>(in, rows, cols, out, stride);
    case 2:
      return transpose_words<uint16_t>(in, rows, cols, out, stride);
    case 4:
      return transpose_words<uint32_t>(in, rows, cols, out, stride);
    default:
      PHX_ASSERT(element == 8, "an element of ", element, " bytes");
      return transpose_words<uint64_t>(in, rows, cols, out, stride);
  }
}

std::string shape_text(const std::vector<int64_t>& shape) { return str_cat(Shape(shape)); }

// Everything that is wrong with a source, told at once.
class Findings {
 public:
  void missing(const std::string& name, const std::string& near) {
    add(missing_, near.empty() ? name : str_cat(name, " (nearest: ", near, ")"));
  }
  void different(std::string text) { add(different_, std::move(text)); }
  void unexpected(const std::string& name) { add(unexpected_, name); }

  void throw_if_any(const std::string& where) const {
    const std::string text = part("missing", missing_) + part("do not fit", different_) +
                             part("nothing asks for", unexpected_);
    PHX_CHECK(text.empty(), where, " does not hold the model's tensors", text);
  }

 private:
  static void add(std::vector<std::string>& list, std::string text) {
    list.push_back(std::move(text));
  }
  static std::string part(const char* title, const std::vector<std::string>& list) {
    if (list.empty()) return "";
    constexpr size_t kMost = 6;
    std::string text = str_cat("\n  ", title, ": ", list.size());
    for (size_t i = 0; i < std::min(list.size(), kMost); ++i) text += "\n    " + list[i];
    if (list.size() > kMost) text += str_cat("\n    and ", list.size() - kMost, " more");
    return text;
  }
  std::vector<std::string> missing_, different_, unexpected_;
};

// The source's tensors that nothing asks for: what is missing may be among them.
std::vector<std::string> others(const TensorSource& source, const std::set<std::string>& wanted) {
  std::vector<std::string> names;
  for (const auto& [name, info] : source.tensors())
    if (!wanted.contains(name)) names.push_back(name);
  return names;
}

const TensorInfo* find(const TensorSource& source, const std::string& name) {
  const auto found = source.tensors().find(name);
  return found == source.tensors().end() ? nullptr : &found->second;
}

// The tensor if it is there and fits.
const TensorInfo* expect(const TensorSource& source, const std::string& name,
                         const std::vector<int64_t>& shape,
                         const std::vector<std::string>& all_names, Findings& findings) {
  const TensorInfo* info = find(source, name);
  if (info == nullptr) {
    findings.missing(name, nearest(name, all_names));
  } else if (info->shape != shape) {
    findings.different(str_cat(name, " is ", shape_text(info->shape),
                               " there, but the model's config makes it ", shape_text(shape)));
    info = nullptr;
  }
  return info;
}

}  // namespace

std::unique_ptr<RearrangedSource> RearrangedSource::hf_as_megatron(
    std::shared_ptr<const TensorSource> hf, const Family& family,
    const std::vector<TensorPair>& pairs, const std::string& where) {
  std::unique_ptr<RearrangedSource> source(
      new RearrangedSource(hf, str_cat(hf->description(), " as ", family.name)));
  Findings findings;
  // Without a head of its own a folder may hold the embedding's copy under the head's name.
  std::set<std::string> wanted = {"lm_head.weight"};
  for (const TensorPair& pair : pairs)
    for (const TensorPair::Theirs& theirs : pair.hf) wanted.insert(theirs.name);
  const std::vector<std::string> rest = others(*hf, wanted);
  for (const TensorPair& pair : pairs) {
    Recipe recipe{.blocks = {}, .from_transposed = pair.transposed, .transposed = false};
    const TensorInfo* first = nullptr;
    for (const TensorPair::Theirs& theirs : pair.hf) {
      const TensorInfo* info = expect(*hf, theirs.name, theirs.shape, rest, findings);
      if (info == nullptr) continue;
      if (first != nullptr && info->dtype != first->dtype)
        findings.different(str_cat(theirs.name, " is ", name(info->dtype), ", but ",
                                   pair.hf[0].name, ", which it is joined with, is ",
                                   name(first->dtype)));
      if (first == nullptr) first = info;
    }
    for (const RowBlock& block : pair.blocks)
      recipe.blocks.push_back({pair.hf[block.hf].name, block.our_row, block.hf_row, block.count});
    source->tensors_[pair.ours] = {first ? first->dtype : DType::f32, pair.our_shape};
    source->recipes_[pair.ours] = std::move(recipe);
  }
  for (const std::string& name : rest) {
    const bool ignored = std::ranges::any_of(
        family.ignored, [&](const char* ending) { return name.ends_with(ending); });
    if (!ignored) findings.unexpected(name);
  }
  findings.throw_if_any(where);
  return source;
}

std::unique_ptr<RearrangedSource> RearrangedSource::megatron_as_hf(
    std::shared_ptr<const TensorSource> ours, const std::vector<TensorPair>& pairs,
    const std::string& where) {
  std::unique_ptr<RearrangedSource> source(
      new RearrangedSource(ours, str_cat(ours->description(), " under Hugging Face's names")));
  Findings findings;
  std::set<std::string> wanted;
  for (const TensorPair& pair : pairs) wanted.insert(pair.ours);
  const std::vector<std::string> rest = others(*ours, wanted);
  for (const TensorPair& pair : pairs) {
    const TensorInfo* info = expect(*ours, pair.ours, pair.our_shape, rest, findings);
    for (size_t i = 0; i < pair.hf.size(); ++i) {
      Recipe recipe{.blocks = {}, .from_transposed = false, .transposed = pair.transposed};
      for (const RowBlock& block : pair.blocks)
        if (block.hf == i)
          recipe.blocks.push_back({pair.ours, block.hf_row, block.our_row, block.count});
      std::ranges::sort(recipe.blocks, {}, &Block::row);
      source->tensors_[pair.hf[i].name] = {info ? info->dtype : DType::f32, pair.hf[i].shape};
      source->recipes_[pair.hf[i].name] = std::move(recipe);
    }
  }
  findings.throw_if_any(where);
  return source;
}

// `box` in rows and columns of [out, in]; out is dense.
void RearrangedSource::read_rows(const Recipe& recipe, const Box& box, int64_t element,
                                 std::span<std::byte> out) const {
  const bool matrix = box.size.size() == 2;
  const int64_t begin = box.begin[0], end = begin + box.size[0];
  const int64_t cols = matrix ? box.size[1] : 1, first_col = matrix ? box.begin[1] : 0;
  for (const Block& block : recipe.blocks) {
    const int64_t low = std::max(begin, block.row), high = std::min(end, block.row + block.count);
    if (low >= high || cols == 0) continue;
    const int64_t from_row = block.from_row + low - block.row;
    std::span<std::byte> rows =
        out.subspan(size_t((low - begin) * cols * element), size_t((high - low) * cols * element));
    if (!recipe.from_transposed) {
      Box from{{from_row}, {high - low}};
      if (matrix) {
        from.begin.push_back(first_col);
        from.size.push_back(cols);
      }
      from_->read(block.from, from, rows);
      continue;
    }
    const int64_t slab = std::max<int64_t>(1, kSlabBytes / (cols * element));
    std::vector<std::byte> buffer;
    for (int64_t row = 0; row < high - low; row += slab) {
      const int64_t count = std::min(slab, high - low - row);
      buffer.resize(size_t(count * cols * element));
      from_->read(block.from, {{first_col, from_row + row}, {cols, count}}, buffer);
      transpose(buffer.data(), cols, count, element, rows.data() + row * cols * element, cols);
    }
  }
}

void RearrangedSource::read(const std::string& name, const Box& box,
                            std::span<std::byte> out) const {
  const auto found = recipes_.find(name);
  PHX_CHECK(found != recipes_.end(), description_, " has no tensor ", name);
  const Recipe& recipe = found->second;
  const TensorInfo& info = tensors_.at(name);
  const int64_t element = size_of(info.dtype);
  int64_t elements = 1;
  PHX_CHECK(box.begin.size() == info.shape.size() && box.size.size() == info.shape.size(), name,
            " is ", shape_text(info.shape), "; a box of it has as many dimensions");
  for (size_t i = 0; i < info.shape.size(); ++i) {
    PHX_CHECK(box.begin[i] >= 0 && box.size[i] >= 0 && box.begin[i] + box.size[i] <= info.shape[i],
              name, " is ", shape_text(info.shape), "; elements ", box.begin[i], " to ",
              box.begin[i] + box.size[i], " of dimension ", i, " are asked for");
    elements *= box.size[i];
  }
  PHX_CHECK(int64_t(out.size()) == elements * element, name, ": ", out.size(),
            " bytes of room for ", elements, " elements of ", element, " bytes");
  if (!recipe.transposed) return read_rows(recipe, box, element, out);

  // Theirs is [in, out]: slabs of our rows become slabs of columns.
  const int64_t rows = box.size[1], cols = box.size[0];
  if (elements == 0) return;
  const int64_t slab = std::max<int64_t>(1, kSlabBytes / (cols * element));
  std::vector<std::byte> buffer;
  for (int64_t row = 0; row < rows; row += slab) {
    const int64_t count = std::min(slab, rows - row);
    buffer.resize(size_t(count * cols * element));
    read_rows(recipe, {{box.begin[1] + row, box.begin[0]}, {count, cols}}, element, buffer);
    transpose(buffer.data(), count, cols, element, out.data() + row * element, rows);
  }
}

}  // namespace phx
