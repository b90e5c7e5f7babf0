// Lookup in the lists that a catalogue consists of: entries with a name, of which a flag chooses
// one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

template <class Entry>
std::vector<std::string> entry_names(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return names;
}

template <class Entry>
std::string entries_text(const std::vector<Entry>& entries) {  // "adam, sgd"
  std::string text;
  for (const Entry& entry : entries) text += (text.empty() ? "" : ", ") + entry.name;
  return text.empty() ? "none" : text;
}

template <class Entry>
const Entry* find_entry(const std::vector<Entry>& entries, const std::string& name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  return found == entries.end() ? nullptr : &*found;
}

// Throws and names the entries that there are. `flag`: "--optimizer".
template <class Entry>
const Entry& entry_of(const std::vector<Entry>& entries, const std::string& name,
                      const char* flag) {
  const Entry* entry = find_entry(entries, name);
  PHX_CHECK(entry != nullptr, flag, " ", name,
            " is not in the catalogue of this program, which has: ", entries_text(entries));
  return *entry;
}

}  // namespace phx
