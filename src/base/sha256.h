// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): for messages of a few hundred bytes, such as
// the handshake between ranks. Not made for speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace phx {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view message);
Digest hmac_sha256(std::string_view key, std::string_view message);

// Takes as long wherever they differ, so that the time does not tell how much was right.
bool same_digest(const Digest& a, const Digest& b);

}  // namespace phx
