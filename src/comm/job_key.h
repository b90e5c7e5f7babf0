// The secret that the ranks of one job share. It never goes over the wire: who knows it can answer
// a challenge with a code that nobody else can make (comm/handshake.h).
#pragma once

#include <string>
#include <string_view>

#include "phalanx/base/sha256.h"

namespace phx {

class JobKey {
 public:
  JobKey() = default;  // anybody's: it tells apart those who come by mistake, and no more
  explicit JobKey(std::string secret) : secret_(std::move(secret)) {}

  // A key for one purpose; what it signs says nothing about another's.
  JobKey with(std::string_view purpose) const;
  const std::string& secret() const { return secret_; }
  Digest code(std::string_view message) const { return hmac_sha256(secret_, message); }

 private:
  std::string secret_;
};

// From the system's random numbers, for people to copy: 32 hexadecimal digits.
std::string make_job_key();
std::string random_bytes(size_t count);

// What is wrong with a key that somebody chose; nothing if it is long enough not to be guessed.
std::string job_key_problem(std::string_view secret);

}  // namespace phx
