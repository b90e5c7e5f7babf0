// What every rank of a run must have alike: options, program, data, environment. The ranks compare
// it as soon as they have met, before anything is built from it: ranks that disagree would wait for
// each other for ever, or train something that nobody asked for.
#pragma once

#include <map>
#include <span>
#include <string>

namespace phx {

class TcpStore;

using Settings = std::map<std::string, std::string>;  // "--lr" -> "0.001"

std::string settings_text(const Settings& settings);
Settings parse_settings(const std::string& text);

// What differs between the ranks: a line for each setting, with its values and who has them. Empty
// if nothing does. `of_ranks`: by rank.
std::string settings_differences(std::span<const Settings> of_ranks);

// Collective: rank 0 compares, and all ranks throw the same text when something differs. They have
// left the store in good order by then.
void compare_settings(TcpStore& store, int rank, int size, const Settings& own);

}  // namespace phx
