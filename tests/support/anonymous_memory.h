// The memory of this process that no file is behind, watched by a thread of its own.
#pragma once

#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace phx {

// Sanitizers keep what was freed.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMemoryIsMeasured = false;
#else
inline constexpr bool kMemoryIsMeasured = true;
#endif

class AnonymousMemory {
 public:
  AnonymousMemory() {
    ::malloc_trim(0);  // or what is free would be taken again, unseen
    before_ = now();
    most_ = before_;
    watch_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        look();
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
  }

  // The most so far, beside what there was when the watch began.
  int64_t peak_beside() {
    look();
    return most_ - before_;
  }

 private:
  static int64_t now() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
    return 0;
  }
  void look() {
    const int64_t here = now();
    for (int64_t most = most_; here > most && !most_.compare_exchange_weak(most, here);) {
    }
  }

  int64_t before_ = 0;
  std::atomic<int64_t> most_ = 0;
  std::jthread watch_;
};

}  // namespace phx
