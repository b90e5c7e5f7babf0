// What most sources read first, parsed once. Large headers that few sources read stay out: the
// templates they leave behind cost every source time (nlohmann/json.hpp 0.6 s).
// Sources still include what they use: a build with -DPHX_PCH=OFF must work.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
