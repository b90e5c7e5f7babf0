#include "phalanx/checkpoint/torch/pickle.h"

#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/torch/pickle_machine.h"
#include "phalanx/checkpoint/torch/pickle_opcodes.h"

namespace phx {
namespace {

using Kind = PickleValue::Kind;
using namespace pickle_op;

std::string hex(uint8_t byte) {
  constexpr char digits[] = "0123456789abcdef";
  return {'0', 'x', digits[byte >> 4], digits[byte & 15]};
}

}  // namespace

bool PickleReader::step_atom(uint8_t op) {
  switch (op) {
    case kNone:
      return push(none_), true;
    case kNewTrue:
      return push(true_), true;
    case kNewFalse:
      return push(false_), true;
    case kBinInt:
      return push_integer(take_number<int32_t>()), true;
    case kBinInt1:
      return push_integer(take_number<uint8_t>()), true;
    case kBinInt2:
      return push_integer(take_number<uint16_t>()), true;
    case kLong1:
      return push_long(take(take_number<uint8_t>())), true;
    case kLong4:
      return push_long(take(take_number<uint32_t>())), true;
    case kBinFloat: {
      const uint64_t bits = __builtin_bswap64(take_number<uint64_t>());  // big endian, alone here
      PickleValue* value = make(Kind::real);
      std::memcpy(&value->real, &bits, sizeof bits);
      return push(value), true;
    }
    case kShortBinUnicode:
      return push_text(Kind::text, take(take_number<uint8_t>())), true;
    case kBinUnicode:
      return push_text(Kind::text, take(take_number<uint32_t>())), true;
    case kBinUnicode8:
      return push_text(Kind::text, take(take_number<uint64_t>())), true;
    case kShortBinString:  // Python 2's text: its keys of state dicts
      return push_text(Kind::text, take(take_number<uint8_t>())), true;
    case kBinString:
      return push_text(Kind::text, take(take_number<uint32_t>())), true;
    case kShortBinBytes:
      return push_text(Kind::bytes, take(take_number<uint8_t>())), true;
    case kBinBytes:
      return push_text(Kind::bytes, take(take_number<uint32_t>())), true;
    case kBinBytes8:
    case kByteArray8:
      return push_text(Kind::bytes, take(take_number<uint64_t>())), true;
    default:
      return false;
  }
}

bool PickleReader::step_collection(uint8_t op) {
  switch (op) {
    case kEmptyTuple:
      return push(empty_tuple_), true;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      return push_tuple(op - kTuple1 + 1), true;
    case kTuple:
      return push_collection(Kind::tuple, pop_mark()), true;
    case kEmptyList:
      return push_collection(Kind::list, {}), true;
    case kList:
      return push_collection(Kind::list, pop_mark()), true;
    case kFrozenSet:
      return push_collection(Kind::set, pop_mark()), true;
    case kEmptySet:
      return push_collection(Kind::set, {}), true;
    case kEmptyDict:
      return push_collection(Kind::dict, {}), true;
    case kAppend: {
      const PickleValue* item = pop();
      return append({&item, 1}), true;
    }
    case kAppends:
      return append(pop_mark()), true;
    case kAddItems: {
      const auto items = pop_mark();
      PickleValue* target = top();
      PHX_CHECK(target->is(Kind::set), here(), "elements are added to ", describe(*target));
      target->items.insert(target->items.end(), items.begin(), items.end());
      return true;
    }
    case kDict: {
      auto items = pop_mark();
      PHX_CHECK(items.size() % 2 == 0, here(), "a key is set without a value");
      return push_collection(Kind::dict, std::move(items)), true;
    }
    case kSetItem: {
      const PickleValue *value = pop(), *key = pop();
      const PickleValue* pair[] = {key, value};
      return set_items(pair), true;
    }
    case kSetItems:
      return set_items(pop_mark()), true;
    default:
      return false;
  }
}

void PickleReader::step(uint8_t op) {
  if (step_atom(op) || step_collection(op)) return;
  switch (op) {
    case kProto: {
      const int version = take_number<uint8_t>();
      PHX_CHECK(version >= 2 && version <= 5, here(), "protocol ", version,
                "; protocols 2 to 5 are read");
      return;
    }
    case kFrame:  // how much to read ahead: all of it is in memory already
      return void(take_number<uint64_t>());
    case kMark:
      PHX_CHECK(static_cast<int64_t>(marks_.size()) < limits_.max_marks, here(), "more than ",
                limits_.max_marks, " containers inside each other");
      return marks_.push_back(stack_.size());
    case kPop:
      if (!marks_.empty() && stack_.size() == floor()) return marks_.pop_back();
      return void(pop());
    case kPopMark:
      return void(pop_mark());
    case kDup:
      return push(top());
    case kGlobal: {
      const std::string_view module = take_line(), name = take_line();
      return push_global(module, name);
    }
    case kStackGlobal:
      return push_stack_global();
    case kReduce:
    case kNewObj: {
      const PickleValue *args = pop(), *callee = pop();
      return push_call(callee, args);
    }
    case kNewObjEx: {
      const PickleValue* named = pop();
      const PickleValue *args = pop(), *callee = pop();
      PHX_CHECK(named->is(Kind::dict) && named->items.empty(), here(), describe(*callee),
                " is made with named arguments");
      return push_call(callee, args);
    }
    case kBuild:
      return build();
    case kBinPersId: {
      const PickleValue* id = pop();
      PickleValue* value = make(Kind::persistent);
      value->args = id;
      return push(value);
    }
    case kBinGet:
      return get(take_number<uint8_t>());
    case kLongBinGet:
      return get(take_number<uint32_t>());
    case kBinPut:
      return put(take_number<uint8_t>());
    case kLongBinPut:
      return put(take_number<uint32_t>());
    case kMemoize:
      return put(memo_.size());
    default:
      PHX_CHECK(false, here(), "the byte ", hex(op), ", ", why_refused(op));
  }
}

PickleTree::PickleTree(std::span<const std::byte> bytes, const std::string& where,
                       const PickleLimits& limits) {
  PickleReader(bytes, where, limits, *this).run();
}

}  // namespace phx
