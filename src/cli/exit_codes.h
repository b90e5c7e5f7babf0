// What the process returns.
#pragma once

namespace phx {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitSignal = 3;  // stopped by a signal, in order: after saving, or cleaning up

}  // namespace phx
