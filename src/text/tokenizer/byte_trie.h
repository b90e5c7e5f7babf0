// A trie over bytes; children live in one hash table.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

namespace phx {

class ByteTrie {
 public:
  static constexpr uint32_t kRoot = 0, kNoNode = 0xFFFFFFFFu;

  // The same word twice keeps the last value; values are not negative.
  void add(std::string_view word, int32_t value) {
    uint32_t node = kRoot;
    for (const char c : word) {
      uint32_t next = child(node, c);
      if (next == kNoNode) {
        next = static_cast<uint32_t>(values_.size());
        values_.push_back(-1);
        if (values_.size() * 2 > slots_.size()) grow();
        insert(key_of(node, c), next);
      }
      node = next;
    }
    values_[node] = value;
  }

  uint32_t child(uint32_t node, char c) const {
    const uint64_t key = key_of(node, c);
    for (size_t at = index_of(key);; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].key == key) return slots_[at].node;
      if (slots_[at].key == kEmpty) return kNoNode;
    }
  }
  int32_t value(uint32_t node) const { return values_[node]; }  // -1 when no word ends there
  size_t size() const { return values_.size(); }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    uint32_t node = 0;
  };

  static uint64_t key_of(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<uint8_t>(c);
  }
  size_t index_of(uint64_t key) const {
    return (key * 0x9E3779B97F4A7C15u) >> (64 - std::countr_zero(slots_.size()));
  }
  void insert(uint64_t key, uint32_t node) {
    size_t at = index_of(key);
    while (slots_[at].key != kEmpty) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = {key, node};
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) insert(slot.key, slot.node);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::vector<int32_t> values_ = {-1};
};

}  // namespace phx
