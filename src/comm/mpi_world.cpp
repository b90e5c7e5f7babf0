#include "phalanx/comm/mpi_world.h"

#include "phalanx/base/error.h"

#ifndef PHX_HAVE_MPI

namespace phx {

bool has_mpi() { return false; }

std::unique_ptr<World> make_mpi_world(const LaunchEnvironment&, const WorldOptions&) {
  throw_error("this phalanx was built without MPI; build it where Open MPI is installed");
}

}  // namespace phx

#else

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <list>
#include <numeric>
#include <thread>

#include "phalanx/comm/process_ledgers.h"
#include "phalanx/comm/transport_communicator.h"

namespace phx {

namespace {

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw_error(str_cat("MPI: ", call, " failed: ", std::string(text, size_t(length))));
}
#define PHX_MPI_CHECK(call) check_mpi((call), #call)

constexpr size_t kMostAtOnce = size_t{1} << 30;  // counts are int
// Tags. Collectives carry their number, so that ranks which disagree on it wait, and say so.
constexpr int kMessage = 1;
int collective_tag(uint64_t round) { return 2 + int(round % 16384); }

// Polls with longer and longer naps: MPI itself can only spin, and ranks may share a core.
class Nap {
 public:
  void take() {
    if (++turns_ <= 16) return std::this_thread::yield();
    std::this_thread::sleep_for(length_);
    length_ = std::min(length_ * 2, std::chrono::microseconds(1000));
  }

 private:
  int turns_ = 0;
  std::chrono::microseconds length_{10};
};

// Sends that have been copied and are still under way, of all groups. Whoever waits pushes them on.
class PendingSends {
 public:
  void add(Buffer buffer, std::vector<MPI_Request> requests) {
    sends_.push_back({std::move(buffer), std::move(requests)});
  }
  Buffer copy_of(ByteView bytes) { return pool_.copy_of(bytes); }
  bool empty() const { return sends_.empty(); }
  void progress() {
    for (auto it = sends_.begin(); it != sends_.end();) {
      int done = 0;
      PHX_MPI_CHECK(
          MPI_Testall(int(it->requests.size()), it->requests.data(), &done, MPI_STATUSES_IGNORE));
      if (done) pool_.give_back(std::move(it->buffer));
      it = done ? sends_.erase(it) : std::next(it);
    }
  }

 private:
  struct Send {
    Buffer buffer;
    std::vector<MPI_Request> requests;
  };
  std::list<Send> sends_;
  BufferPool pool_;
};

class MpiTransport : public ByteTransport {
 public:
  MpiTransport(const GroupInfo& info, std::shared_ptr<PendingSends> pending,
               std::chrono::milliseconds timeout)
      : ByteTransport(info.rank, int(info.members.size())),
        pending_(std::move(pending)),
        timeout_(timeout) {
    MPI_Group world, group;
    PHX_MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    PHX_MPI_CHECK(MPI_Group_incl(world, size(), info.members.data(), &group));
    // The tag keeps apart groups that are made at the same time by ranks that share several.
    PHX_MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, group, int(info.id % 32749), &comm_));
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    PHX_MPI_CHECK(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }
  // The communicator is left to MPI_Finalize: to free it is collective, and destructors come in any
  // order.
  ~MpiTransport() override = default;

  void all_to_all(std::span<const ByteView> to, std::span<const ByteRoom> from) override {
    const int tag = collective_tag(++round_);
    std::vector<MPI_Request> requests;
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + size() - i) % size();
      start_receives(from[r], r, tag, requests);
    }
    const size_t receives = requests.size();
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();
      start_sends(to[r], r, tag, requests);
    }
    finish(requests, receives, from);
  }

  void send(ByteView bytes, int peer) override {
    Buffer copy = pending_->copy_of(bytes);
    std::vector<MPI_Request> requests;
    if (bytes.empty()) {  // a message all the same
      MPI_Request request;
      PHX_MPI_CHECK(MPI_Isend(nullptr, 0, MPI_BYTE, peer, kMessage, comm_, &request));
      requests.push_back(request);
    }
    start_sends(copy.room(), peer, kMessage, requests);
    pending_->add(std::move(copy), std::move(requests));
    pending_->progress();
  }

  void receive(ByteRoom room, int peer) override {
    std::vector<MPI_Request> requests;
    if (room.empty()) {
      MPI_Request request;
      PHX_MPI_CHECK(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kMessage, comm_, &request));
      requests.push_back(request);
    }
    start_receives(room, peer, kMessage, requests);
    std::vector<ByteRoom> from(size());
    from[peer] = room;
    finish(requests, requests.size(), from);
  }

  // mpirun ends all ranks when this one ends with an error: nobody needs to be told.
  void fail(const std::string&) override {}

 private:
  void start_sends(ByteView bytes, int peer, int tag, std::vector<MPI_Request>& requests) {
    for (size_t at = 0; at < bytes.size(); at += kMostAtOnce) {
      const int count = int(std::min(kMostAtOnce, bytes.size() - at));
      MPI_Request request;
      PHX_MPI_CHECK(MPI_Isend(bytes.data() + at, count, MPI_BYTE, peer, tag, comm_, &request));
      requests.push_back(request);
    }
  }
  void start_receives(ByteRoom room, int peer, int tag, std::vector<MPI_Request>& requests) {
    for (size_t at = 0; at < room.size(); at += kMostAtOnce) {
      const int count = int(std::min(kMostAtOnce, room.size() - at));
      MPI_Request request;
      PHX_MPI_CHECK(MPI_Irecv(room.data() + at, count, MPI_BYTE, peer, tag, comm_, &request));
      requests.push_back(request);
    }
  }

  // The receives stand first. If this throws, MPI must not touch the caller's memory any more.
  void finish(std::vector<MPI_Request>& requests, size_t receives, std::span<const ByteRoom> from) {
    try {
      std::vector<MPI_Status> statuses(requests.size());
      wait_for(requests, statuses, receives, from);
      for (size_t i = 0; i < receives; ++i) check_count(statuses[i], from);
    } catch (...) {
      for (MPI_Request& request : requests) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
      throw;
    }
  }

  void wait_for(std::vector<MPI_Request>& requests, std::vector<MPI_Status>& statuses,
                size_t receives, std::span<const ByteRoom> from) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    Nap nap;
    while (true) {
      int done = 0;
      const int status = MPI_Testall(int(requests.size()), requests.data(), &done, statuses.data());
      for (size_t i = 0; status == MPI_ERR_IN_STATUS && i < receives; ++i) {
        const int peer = statuses[i].MPI_SOURCE;
        if (statuses[i].MPI_ERROR == MPI_ERR_TRUNCATE)  // how much came is not known
          throw SizeMismatch(peer, from[peer].size() + 1, from[peer].size());
      }
      check_mpi(status, "MPI_Testall");
      pending_->progress();
      if (done) return;
      if (std::chrono::steady_clock::now() >= deadline)
        throw Stalled(
            str_cat("nothing came for ", std::chrono::duration<double>(timeout_).count(), " s"));
      nap.take();
    }
  }

  // A message that is shorter than its room is no error to MPI.
  void check_count(const MPI_Status& status, std::span<const ByteRoom> from) const {
    int count = 0;
    PHX_MPI_CHECK(MPI_Get_count(&status, MPI_BYTE, &count));
    const size_t expected = from[status.MPI_SOURCE].size();
    if (expected <= kMostAtOnce && size_t(count) != expected)
      throw SizeMismatch(status.MPI_SOURCE, size_t(count), expected);
  }

  std::shared_ptr<PendingSends> pending_;
  std::chrono::milliseconds timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  uint64_t round_ = 0;
};

class MpiWorld : public World {
 public:
  MpiWorld(const LaunchEnvironment& environment, const WorldOptions& options)
      : environment_(environment),
        timeout_(options.timeout),
        pending_(std::make_shared<PendingSends>()) {
    int started = 0, provided = 0;
    MPI_Initialized(&started);
    PHX_CHECK(!started, "MPI was started before in this process, and cannot be started twice");
    PHX_MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
    PHX_MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    PHX_MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &environment_.rank));
    PHX_MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &environment_.size));
    ledgers_ = std::make_shared<ProcessLedgers>(environment_);
    compare_settings(settings_text(options.settings));
  }
  ~MpiWorld() override {
    // After an error the others may never come to the end: mpirun sees us go, and ends them.
    if (failed_ || std::uncaught_exceptions() > 0) {
      ledgers_->keep();
      return;
    }
    try {
      const auto deadline = std::chrono::steady_clock::now() + timeout_;
      Nap nap;
      while (!pending_->empty() && std::chrono::steady_clock::now() < deadline) {
        pending_->progress();
        nap.take();
      }
    } catch (const std::exception&) {
      return;
    }
    MPI_Finalize();
  }

  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.size; }
  int local_rank() const override { return environment_.local_rank; }
  std::string description() const override {
    return str_cat(size(), " ranks as processes over MPI, started by mpirun");
  }
  void fail(const std::string&) override { failed_ = true; }

 protected:
  std::shared_ptr<RankLedgers> ledgers() override { return ledgers_; }
  std::unique_ptr<Communicator> make_group(GroupInfo info) override {
    std::unique_ptr<ByteTransport> transport;
    if (info.members.size() > 1)
      transport = std::make_unique<MpiTransport>(info, pending_, timeout_);
    return std::make_unique<TransportCommunicator>(std::move(info), std::move(transport));
  }

 private:
  // All ranks have met in MPI_Init. Rank 0 compares, and all say what it found.
  void compare_settings(const std::string& own) const {
    const int ranks = size(), bytes = int(own.size());
    std::vector<int> counts(static_cast<size_t>(ranks)), places(static_cast<size_t>(ranks));
    PHX_MPI_CHECK(MPI_Gather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, 0, MPI_COMM_WORLD));
    std::exclusive_scan(counts.begin(), counts.end(), places.begin(), 0);
    std::string texts(rank() == 0 ? size_t(places.back() + counts.back()) : 0, '\0');
    PHX_MPI_CHECK(MPI_Gatherv(own.data(), bytes, MPI_CHAR, texts.data(), counts.data(),
                              places.data(), MPI_CHAR, 0, MPI_COMM_WORLD));
    std::vector<Settings> of_ranks;
    for (size_t r = 0; rank() == 0 && r < size_t(ranks); ++r)
      of_ranks.push_back(parse_settings(texts.substr(size_t(places[r]), size_t(counts[r]))));
    std::string verdict = settings_differences(of_ranks);
    int length = int(verdict.size());
    PHX_MPI_CHECK(MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD));
    verdict.resize(size_t(length));
    PHX_MPI_CHECK(MPI_Bcast(verdict.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (verdict.empty()) return;
    MPI_Finalize();
    throw_error(verdict);
  }

  LaunchEnvironment environment_;
  std::chrono::milliseconds timeout_;
  std::shared_ptr<PendingSends> pending_;
  std::shared_ptr<ProcessLedgers> ledgers_;
  bool failed_ = false;
};

}  // namespace

bool has_mpi() { return true; }

std::unique_ptr<World> make_mpi_world(const LaunchEnvironment& environment,
                                      const WorldOptions& options) {
  return std::make_unique<MpiWorld>(environment, options);
}

}  // namespace phx

#endif
