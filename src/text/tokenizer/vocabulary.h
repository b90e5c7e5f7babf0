// Tokens and their ids, both ways. Ids need not be dense; a gap is an empty token.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace phx {

class Vocabulary {
 public:
  static constexpr int64_t kMaxSize = 1 << 21;  // ids have 21 bits in the table of merges

  // The same text twice keeps the last id. An id outside of 0..kMaxSize - 1 is an error.
  void add(const std::string& token, int64_t id);

  std::optional<int32_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  bool has(int64_t id) const { return id >= 0 && id < size() && known_[static_cast<size_t>(id)]; }
  const std::string& token(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }  // the largest id plus 1
  int64_t count() const { return static_cast<int64_t>(ids_.size()); }

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  const std::unordered_map<std::string, int32_t, Hash, std::equal_to<>>& ids() const {
    return ids_;
  }

 private:
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::vector<std::string> tokens_;
  std::vector<bool> known_;
};

}  // namespace phx
