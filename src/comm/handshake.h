// How two ranks show each other that they know the job's key, on a connection on which nothing was
// said before. Both sides answer a random number of the other with a code made with the key.
//   listener -> caller    Challenge   a random number
//   caller -> listener    Answer      another one, the caller's rank, and the code of all three
//   listener -> caller    Verdict     whether it holds, and the listener's own code
// The listener's side of it is in comm/arrivals.h, which serves many callers at once.
#pragma once

#include <array>
#include <functional>

#include "phalanx/comm/job_key.h"
#include "phalanx/comm/socket.h"

namespace phx {

namespace handshake {

using Nonce = std::array<char, 16>;
inline constexpr uint32_t kMagic = 0x50485833;

struct Challenge {
  uint32_t magic = kMagic;
  uint32_t version = 2;
  Nonce nonce{};
};
struct Answer {
  Nonce nonce{};
  int32_t rank = -1;
  uint32_t unused = 0;
  Digest code{};
};
struct Verdict {
  uint32_t magic = kMagic;
  uint32_t accepted = 0;
  Digest code{};
};

Challenge make_challenge();
Answer answer_to(const Challenge& challenge, const JobKey& key, int rank);
Verdict verdict_on(const Answer& answer, const Challenge& challenge, const JobKey& key);
// Whether the listener knows the key as well.
bool is_genuine(const Verdict& verdict, const Answer& answer, const Challenge& challenge,
                const JobKey& key);

}  // namespace handshake

// Whom to call, and with which key: one that only this listener has. `what` is for messages: "rank
// 0's TCP store".
struct Contact {
  std::string what;
  Hosts hosts;
  int port = 0;
  JobKey key;
  int own_rank = 0;
};

// The other side is phalanx, but has another key.
class AnotherKey : public Error {
 public:
  using Error::Error;
};

// Connects, and shakes hands. Tries again until the deadline while nobody answers, or the one who
// does hangs up: `on_wait` hears every few milliseconds why. Throws Stalled after the deadline,
// AnotherKey, and Error if the other side is something else, or its name is not known for a minute.
using OnWait = std::function<void(const std::string& why)>;
FileHandle call(const Contact& contact, Deadline deadline, const OnWait& on_wait = {});

}  // namespace phx
