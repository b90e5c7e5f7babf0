// What a value holds: attributes, items and slices, and the attributes of `loop`.
#include <algorithm>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

namespace {

// Where an index from the end leads; nothing if it is outside.
std::optional<size_t> place(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return size_t(index);
}

std::optional<Value> find_item(Context& context, const Value& value, const Value& key) {
  switch (value.kind()) {
    case Kind::dict: {
      if (key.is(Kind::list) || key.is(Kind::dict)) return std::nullopt;
      const Value* found = find(value.get<Dict>(), key, context.budget);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::space: {
      if (!key.is(Kind::text)) return std::nullopt;
      for (const auto& [name, held] : value.get<Namespace>().items)
        if (name == key.text()) return held;
      return std::nullopt;
    }
    default:
      break;
  }
  const bool sequence = is_indexed(value) || value.is(Kind::range);
  if (!sequence || !is_integral(key)) return std::nullopt;
  const auto at = place(key.integer(), size_of(value));
  if (!at) return std::nullopt;
  if (value.is(Kind::text)) {
    context.budget.spend_bytes(value.text().size());
    return text(std::string(slice_of(value.text(), int64_t(*at), int64_t(*at) + 1)),
                value.get<Text>().markup);
  }
  if (value.is(Kind::range)) {
    const Range& range = value.get<Range>();
    return Value::of(range.start + int64_t(*at) * range.step);
  }
  return value.get<List>().items[*at];
}

Value missing(Context& context, const Value& value, const Value& key) {
  const std::string owner = value.is(Kind::none) ? "None" : type_name(value) + " object";
  if (key.is(Kind::text)) return undefined("'" + owner + "' has no attribute '" + key.text() + "'");
  return undefined(owner + " has no element " + repr(key, context.budget));
}

Value loop_attribute(LoopState& loop, const std::string& name) {
  if (name == "index0") return Value::of(loop.index0);
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(loop.peek() == nullptr);
  if (name == "length") return Value::of(loop.total());
  if (name == "revindex") return Value::of(loop.total() - loop.index0);
  if (name == "revindex0") return Value::of(loop.total() - loop.index0 - 1);
  if (name == "depth") return Value::of(int64_t{1});
  if (name == "depth0") return Value::of(int64_t{0});
  if (name == "previtem")
    return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") {
    const Value* next = loop.peek();
    return next == nullptr ? undefined("there is no next item") : *next;
  }
  return undefined("'LoopContext' has no attribute '" + name + "'");
}

}  // namespace

const Value* LoopState::peek() {
  if (ahead.empty() && pull) {
    if (std::optional<Value> next = pull()) ahead.push_back(std::move(*next));
  }
  return ahead.empty() ? nullptr : &ahead.front();
}

int64_t LoopState::total() {
  if (length) return *length;
  while (pull) {
    std::optional<Value> next = pull();
    if (!next) break;
    ahead.push_back(std::move(*next));
  }
  length = index0 + 1 + int64_t(ahead.size());
  return *length;
}

Value attribute(Context& context, const Value& value, const std::string& name) {
  context.budget.spend();
  need_defined(value);
  if (value.is(Kind::loop)) {
    if (name == "cycle" || name == "changed") return method(value, name);
    return loop_attribute(value.get<LoopState>(), name);
  }
  if (auto found = find_method(value, name)) return *found;
  const Value key = text(name);
  if (auto found = find_item(context, value, key)) return *found;
  return missing(context, value, key);
}

Value item(Context& context, const Value& value, const Value& key) {
  context.budget.spend();
  need_defined(value);
  if (value.is(Kind::loop)) return attribute(context, value, to_text(key, context.budget));
  if (auto found = find_item(context, value, key)) return *found;
  if (key.is(Kind::text))
    if (auto found = find_method(value, key.text())) return *found;
  return missing(context, value, key);
}

Value slice(Context& context, const Value& value, const Value& from, const Value& to,
            const Value& step_value) {
  need_defined(value);
  if (!is_indexed(value) && !value.is(Kind::range))
    return undefined("a " + type_name(value) + " has no slices");
  for (const Value* part : {&from, &to, &step_value})
    if (!part->is(Kind::none) && !is_integral(*part))
      fault(str_cat("a slice has ints for its bounds, not ", type_name(*part)));
  const int64_t size = size_of(value);
  const int64_t step = step_value.is(Kind::none) ? 1 : step_value.integer();
  if (step == 0) fault("the step of a slice cannot be 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& part, int64_t otherwise) {
    if (part.is(Kind::none)) return otherwise;
    const int64_t at = part.integer();
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t start = bound(from, step > 0 ? low : high), stop = bound(to, step > 0 ? high : low);
  if (value.is(Kind::text) && step == 1) {
    context.budget.spend_bytes(value.text().size());
    return text(std::string(slice_of(value.text(), start, std::max(start, stop))),
                value.get<Text>().markup);
  }
  if (value.is(Kind::range)) {
    const Range& range = value.get<Range>();
    return Value(Kind::range, std::make_shared<Range>(Range{range.start + start * range.step,
                                                            range.start + stop * range.step,
                                                            range.step * step}));
  }
  const Values all = elements(value, context.budget);
  Values chosen;
  const int64_t count = Range{start, stop, step}.size();
  for (int64_t i = 0; i < count; ++i) chosen.push_back(all[size_t(start + i * step)]);
  if (value.is(Kind::text)) return text(joined(context, "", chosen), value.get<Text>().markup);
  return value.is(Kind::tuple) ? tuple(std::move(chosen)) : list(std::move(chosen));
}

}  // namespace phx::jinja
