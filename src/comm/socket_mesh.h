// TCP connections between all processes of a world, and frames of bytes on them. A frame belongs to
// a channel (a group's collectives, or its messages); within a channel frames arrive in order, and
// what arrives before it is asked for is kept.
//
// The rank's thread does the work itself, asleep in poll(), while it waits. Only what `send` could
// not put into the connection at once is left to a second thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/socket.h"
#include "phalanx/comm/tcp_store.h"

namespace phx {

struct Channel {
  enum Kind : uint32_t { collective, message };
  uint64_t group = 0;
  Kind kind = collective;
  auto operator<=>(const Channel&) const = default;
};

class SocketMesh {
 public:
  // Connects to all ranks; they find each other through `store`. `on_own_failure` is called if this
  // rank is the first to fail, before the others hear of it.
  SocketMesh(const LaunchEnvironment& environment, TcpStore& store,
             std::chrono::milliseconds timeout, std::function<void()> on_own_failure);
  // Says goodbye, after what is still to be sent; or, if `fail` was called, why not.
  ~SocketMesh();
  SocketMesh(const SocketMesh&) = delete;
  SocketMesh& operator=(const SocketMesh&) = delete;

  // Frame number `sequence` of the channel, with each of the peers (world ranks); an empty part is
  // no frame. Returns when all bytes are out and in.
  struct Part {
    int peer;
    ByteView out;
    ByteRoom in;
  };
  void exchange(const Channel& channel, uint64_t sequence, std::span<const Part> parts);
  // A frame even if it is empty. `send` copies the bytes and returns.
  void send(const Channel& channel, uint64_t sequence, int peer, ByteView bytes);
  void receive(const Channel& channel, uint64_t sequence, int peer, ByteRoom room);

  void fail(const std::string& why);  // of this rank, or what it heard of another
  void check();                       // throws if another rank failed
  bool failed();

 private:
  static constexpr auto kLookAtPeers = std::chrono::seconds(1);  // between two looks
  struct Header {
    uint32_t magic = 0x50485832;
    uint32_t kind = 0;  // Channel::Kind, goodbye or failure
    uint64_t group = 0, sequence = 0, bytes = 0;
    int64_t origin = -1;  // of a failure
  };
  enum : uint32_t { kGoodbye = 100, kFailure = 101 };

  struct Outgoing {
    Header header;
    ByteView body;
    Buffer owned;          // where body lies, if the mesh copied it
    size_t sent = 0;       // of header and body together
    bool counted = false;  // somebody waits for it
  };
  struct Incoming {  // the frame that is being read
    Header header;
    size_t header_got = 0, body_got = 0;
    ByteRoom target;  // the waiting call's memory, or `kept`
    Buffer kept;
    bool direct = false;
  };
  struct Kept {
    uint64_t sequence;
    Buffer bytes;
  };
  struct Peer {
    FileHandle socket;
    std::deque<Outgoing> out;
    Incoming in;
    std::string where;    // it runs: " on node7 (10.0.0.7)"; nothing if that is this machine
    bool left = false;    // said goodbye
    bool closed = false;  // the connection has ended
  };
  struct Failure {
    int rank;
    std::string why;  // "rank 3 died: ..", a whole sentence
  };
  // What the running call waits for, of one peer.
  struct Wanted {
    uint64_t sequence;
    ByteRoom room;
  };

  std::unique_lock<std::mutex> take_over();
  void hand_over(std::unique_lock<std::mutex> lock);
  void run_helper();

  // All of these with the mutex held.
  void enqueue(int peer, Outgoing frame);
  void want(const Channel& channel, int peer, const Wanted& wanted);
  void finish_call();  // until all that is wanted is in, and all that is counted is out
  void withdraw();     // the call's memory is about to go
  void progress(Deadline deadline);  // sleeps until something can move, and moves it
  void write(int rank);
  void read(int rank);
  void begin_body(int rank);
  void end_frame(int rank);
  void take_kept(const Channel& channel, int rank);
  bool fits(int rank, const Wanted& wanted, uint64_t sequence, size_t bytes);
  void lose(int rank, const std::string& how);
  void lose_unanswered();
  std::string silence_text()
      const;  // why a peer that does not answer is lost  // looks once a second
  void note_failure(int rank, const std::string& why);
  void throw_if_failed() const;
  bool has_output() const;
  std::optional<int> hopeless() const;
  void tell_failure();
  void leave();

  const int rank_, size_;
  const std::chrono::milliseconds timeout_;
  const std::function<void()> on_own_failure_;
  std::vector<Peer> peers_;

  std::mutex mutex_;  // held by the thread that drives the connections
  std::atomic<bool> wanted_by_rank_ = false;
  std::condition_variable changed_;
  FileHandle wake_;  // gets the helper out of poll()
  bool stop_ = false;

  std::map<std::pair<Channel, int>, Wanted> wanted_;
  std::map<std::pair<Channel, int>, std::deque<Kept>> kept_;
  int unsent_ = 0;                        // counted frames of the running call
  std::optional<SizeMismatch> mismatch_;  // peer is a world rank here
  std::optional<Failure> failure_;
  bool failure_told_ = false;
  Deadline next_look_;  // at links without an answer
  BufferPool pool_;
  std::thread helper_;
};

}  // namespace phx
