#include "phalanx/comm/job_key.h"

#include <unistd.h>

#include <cerrno>

#include "phalanx/base/error.h"
#include "phalanx/comm/socket.h"

namespace phx {

namespace {

constexpr size_t kShortest = 16;  // characters: whoever records a handshake can try keys at leisure

}  // namespace

JobKey JobKey::with(std::string_view purpose) const {
  const Digest derived = code(str_cat("phalanx key for ", purpose));
  return JobKey(std::string(reinterpret_cast<const char*>(derived.data()), derived.size()));
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  PHX_CHECK(::getentropy(bytes.data(), count) == 0,
            "the system gives no random numbers: ", system_text(errno));
  return bytes;
}

std::string make_job_key() {
  std::string text;
  for (const char byte : random_bytes(16)) {
    text += "0123456789abcdef"[uint8_t(byte) >> 4];
    text += "0123456789abcdef"[uint8_t(byte) & 15];
  }
  return text;
}

std::string job_key_problem(std::string_view secret) {
  if (secret.size() >= kShortest) return "";
  return str_cat("PHX_JOB_KEY has ", secret.size(), " characters, but needs at least ", kShortest,
                 ": a short one can be guessed");
}

}  // namespace phx
