#include "phalanx/checkpoint/torch/pickle_json.h"

#include <nlohmann/json.hpp>

#include "phalanx/checkpoint/torch/torch_archive.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Kind = PickleValue::Kind;

constexpr int kMaxDepth = 16;
// Of values written, a long text counting as several. Shared values are written as often as they
// are found, so that it needs a limit of its own; a run's arguments are a thousand.
constexpr int64_t kMaxValues = 100'000;

class JsonMaker {
 public:
  explicit JsonMaker(const TorchArchive* archive) : archive_(archive) {}

  Json make(const PickleValue& value, int depth) {
    if (depth > kMaxDepth || --left_ < 0) return nullptr;
    switch (value.kind) {
      case Kind::boolean:
        return value.integer != 0;
      case Kind::integer:
        return value.integer;
      case Kind::real:
        return value.real;
      case Kind::text:
      case Kind::global:
        return text(value);
      case Kind::tuple:
      case Kind::list:
      case Kind::set: {
        Json list = Json::array();
        for (const PickleValue* item : value.items) {
          if (left_ <= 0) break;
          list.push_back(make(*item, depth + 1));
        }
        return list;
      }
      case Kind::dict:
        return pairs(value, depth);
      case Kind::object:
        if (archive_ != nullptr && archive_->is_tensor(value)) {
          const auto number = archive_->number(value);
          return number ? Json(*number) : Json();
        }
        if (value.state != nullptr && value.state->is(Kind::dict))
          return pairs(*value.state, depth);
        // An enumeration's value, a device, a path: what it was made of says which.
        if (value.args->items.size() == 1) return make(*value.args->items[0], depth + 1);
        return nullptr;
      default:
        return nullptr;
    }
  }

 private:
  std::string text(const PickleValue& value) {
    left_ -= static_cast<int64_t>(value.text.size() / 64);
    return left_ < 0 ? "" : std::string(value.text);
  }

  Json pairs(const PickleValue& dict, int depth) {
    Json object = Json::object();
    for (size_t i = 0; i + 1 < dict.items.size() && left_ > 0; i += 2) {
      const PickleValue& key = *dict.items[i];
      std::string name;
      if (key.is(Kind::text))
        name = text(key);
      else if (key.is(Kind::integer))
        name = std::to_string(key.integer);
      else
        continue;
      object[name] = make(*dict.items[i + 1], depth + 1);
    }
    return object;
  }

  const TorchArchive* archive_;
  int64_t left_ = kMaxValues;
};

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string pickle_json(const PickleValue& value) {
  return text_of(JsonMaker(nullptr).make(value, 0));
}

std::string pickle_json(const PickleValue& value, const TorchArchive& archive) {
  return text_of(JsonMaker(&archive).make(value, 0));
}

}  // namespace phx
