#include "phalanx/comm/thread_world.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "phalanx/comm/transport_communicator.h"

namespace phx {

namespace {

using Clock = std::chrono::steady_clock;

// Where the threads of one group meet.
struct Meeting {
  explicit Meeting(size_t size) : published(size), entered(size), mail_came(size) {}

  std::mutex mutex;
  std::condition_variable changed;  // a round opened or closed, or the world failed
  // A round is one all_to_all: it opens when the last rank entered, closes when the last one left.
  std::vector<std::span<const ByteView>> published;  // per rank, what it has for each other one
  std::vector<uint64_t> entered;                     // per rank, its latest round
  size_t present = 0;
  uint64_t opened = 0, closed = 0;
  bool broken = false;  // a rank left before its round opened: what it published is gone

  std::map<std::pair<int, int>, std::deque<Buffer>> mail;  // (to, from), in order
  std::vector<std::condition_variable> mail_came;          // per rank
  BufferPool pool;
};

// What all ranks share.
class SharedRanks {
 public:
  SharedRanks(int size, const WorldOptions& options)
      : size_(size), timeout_(options.timeout), ended_(size) {
    for (int r = 0; r < size; ++r) ledgers_.push_back(std::make_unique<Ledger>(r));
  }

  int size() const { return size_; }
  Ledger& ledger(int rank) { return *ledgers_[rank]; }
  bool ended(int rank) const { return ended_[rank]; }

  std::shared_ptr<Meeting> meeting(uint64_t id, size_t size) {
    const std::lock_guard lock(mutex_);
    auto& slot = meetings_[id];
    if (!slot) slot = std::make_shared<Meeting>(size);
    return slot;
  }

  void fail(int rank, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;  // only the first one says what went wrong
      failure_ = {rank, why};
      failed_ = true;
    }
    wake_all();
  }
  void end(int rank) {
    ended_[rank] = true;
    wake_all();
  }
  bool failed() const { return failed_; }
  std::optional<int> failed_rank() {
    const std::lock_guard lock(mutex_);
    return failure_ ? std::optional(failure_->rank) : std::nullopt;
  }
  void throw_if_failed(int rank) {
    if (!failed_) return;
    const std::lock_guard lock(mutex_);
    if (failure_->rank == rank) throw_error(failure_->why);
    throw_error(str_cat("rank ", failure_->rank, " failed: ", failure_->why));
  }

  // Sleeps until ready(); throws if the world fails, if hopeless() names a rank that has ended, or
  // after the time-out. `lock` holds the meeting's mutex.
  template <class Ready, class Hopeless>
  void wait(int rank, std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
            Ready&& ready, Hopeless&& hopeless) {
    const auto deadline = Clock::now() + timeout_;
    while (!ready()) {
      throw_if_failed(rank);
      if (const std::optional<int> gone = hopeless())
        throw Stalled(str_cat("rank ", *gone, " has ended"));
      if (changed.wait_until(lock, deadline) == std::cv_status::timeout && !ready()) {
        throw_if_failed(rank);
        throw Stalled(
            str_cat("nothing came for ", std::chrono::duration<double>(timeout_).count(), " s"));
      }
    }
  }

 private:
  struct Failure {
    int rank;
    std::string why;
  };

  void wake_all() {
    std::vector<std::shared_ptr<Meeting>> all;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [id, meeting] : meetings_) all.push_back(meeting);
    }
    for (auto& meeting : all) {
      // Taken once, so that nobody is between its look at the world and its sleep.
      { const std::lock_guard lock(meeting->mutex); }
      meeting->changed.notify_all();
      for (auto& came : meeting->mail_came) came.notify_all();
    }
  }

  const int size_;
  const std::chrono::milliseconds timeout_;
  std::vector<std::unique_ptr<Ledger>> ledgers_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::optional<Failure> failure_;
  std::unordered_map<uint64_t, std::shared_ptr<Meeting>> meetings_;
};

class ThreadTransport : public ByteTransport {
 public:
  ThreadTransport(std::shared_ptr<SharedRanks> ranks, const GroupInfo& info)
      : ByteTransport(info.rank, int(info.members.size())),
        ranks_(std::move(ranks)),
        members_(info.members),
        meeting_(ranks_->meeting(info.id, info.members.size())) {}

  void all_to_all(std::span<const ByteView> to, std::span<const ByteRoom> from) override {
    enter(to);
    std::optional<SizeMismatch> mismatch;
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();  // everybody starts elsewhere
      const ByteView theirs = meeting_->published[r][rank()];
      if (theirs.size() != from[r].size())
        mismatch.emplace(r, theirs.size(), from[r].size());
      else if (!theirs.empty())
        std::memcpy(from[r].data(), theirs.data(), theirs.size());
    }
    leave();
    if (mismatch) throw *mismatch;
  }

  void barrier() override {
    const std::vector<ByteView> nothing(size());
    enter(nothing);
    leave();
  }

  void send(ByteView bytes, int peer) override {
    Meeting& meeting = *meeting_;
    Buffer copy;
    {
      const std::lock_guard lock(meeting.mutex);
      copy = meeting.pool.take(bytes.size());
    }
    if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
    {
      const std::lock_guard lock(meeting.mutex);
      meeting.mail[{peer, rank()}].push_back(std::move(copy));
    }
    meeting.mail_came[peer].notify_one();
  }

  void receive(ByteRoom room, int peer) override {
    Meeting& meeting = *meeting_;
    Buffer got;
    {
      std::unique_lock lock(meeting.mutex);
      auto& box = meeting.mail[{rank(), peer}];
      ranks_->wait(
          members_[rank()], meeting.mail_came[rank()], lock, [&] { return !box.empty(); },
          [&] { return ended({peer}); });
      got = std::move(box.front());
      box.pop_front();
    }
    if (got.size() != room.size()) throw SizeMismatch(peer, got.size(), room.size());
    if (!room.empty()) std::memcpy(room.data(), got.data(), room.size());
    const std::lock_guard lock(meeting.mutex);
    meeting.pool.give_back(std::move(got));
  }

  void fail(const std::string& why) override { ranks_->fail(members_[rank()], why); }

 private:
  // Until all ranks have published.
  void enter(std::span<const ByteView> to) {
    Meeting& meeting = *meeting_;
    std::unique_lock lock(meeting.mutex);
    if (meeting.broken) {  // who broke it is about to say why
      meeting.changed.wait(lock, [&] { return ranks_->failed(); });
      ranks_->throw_if_failed(members_[rank()]);
    }
    meeting.published[rank()] = to;
    const uint64_t round = ++meeting.entered[rank()];
    if (++meeting.present == size_t(size())) {
      meeting.opened = round;
      lock.unlock();
      meeting.changed.notify_all();
      return;
    }
    try {
      ranks_->wait(
          members_[rank()], meeting.changed, lock, [&] { return meeting.opened == round; },
          [&] {
            std::vector<int> missing;
            for (int r = 0; r < size(); ++r)
              if (meeting.entered[r] < round) missing.push_back(r);
            return ended(missing);
          });
    } catch (...) {
      meeting.broken = true;
      throw;
    }
  }

  // Until nobody reads this rank's memory any more. That takes no longer than their copies, so
  // even a failed world is waited for.
  void leave() {
    Meeting& meeting = *meeting_;
    std::unique_lock lock(meeting.mutex);
    const uint64_t round = meeting.opened;
    if (--meeting.present == 0) {
      meeting.closed = round;
      lock.unlock();
      meeting.changed.notify_all();
      return;
    }
    meeting.changed.wait(lock, [&] { return meeting.closed == round; });
  }

  std::optional<int> ended(const std::vector<int>& group_ranks) const {
    for (int r : group_ranks)
      if (ranks_->ended(members_[r])) return members_[r];
    return std::nullopt;
  }

  std::shared_ptr<SharedRanks> ranks_;
  std::vector<int> members_;
  std::shared_ptr<Meeting> meeting_;
};

class ThreadLedgers : public RankLedgers {
 public:
  ThreadLedgers(std::shared_ptr<SharedRanks> ranks, int rank)
      : ranks_(std::move(ranks)), rank_(rank) {}
  Ledger& own() override { return ranks_->ledger(rank_); }
  View read(int world_rank) override {
    return {.entries = ranks_->ledger(world_rank).entries(), .ended = ranks_->ended(world_rank)};
  }

 private:
  std::shared_ptr<SharedRanks> ranks_;
  int rank_;
};

class ThreadWorld : public World {
 public:
  ThreadWorld(std::shared_ptr<SharedRanks> ranks, int rank)
      : ranks_(ranks), rank_(rank), ledgers_(std::make_shared<ThreadLedgers>(ranks, rank)) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_->size(); }
  std::string description() const override {
    return str_cat(size(), size() == 1 ? " rank" : " ranks", " as threads");
  }
  void fail(const std::string& why) override { ranks_->fail(rank_, why); }
  void check() override { ranks_->throw_if_failed(rank_); }

 protected:
  std::shared_ptr<RankLedgers> ledgers() override { return ledgers_; }
  std::unique_ptr<Communicator> make_group(GroupInfo info) override {
    auto transport = std::make_unique<ThreadTransport>(ranks_, info);
    return std::make_unique<TransportCommunicator>(std::move(info), std::move(transport));
  }

 private:
  std::shared_ptr<SharedRanks> ranks_;
  int rank_;
  std::shared_ptr<ThreadLedgers> ledgers_;
};

}  // namespace

void run_thread_ranks(int num_ranks, const WorldOptions& options,
                      const std::function<void(World&)>& body) {
  PHX_CHECK(num_ranks > 0, "a world needs a rank at least, not ", num_ranks);
  const auto ranks = std::make_shared<SharedRanks>(num_ranks, options);
  std::vector<std::exception_ptr> thrown(num_ranks);
  const auto run = [&](int rank) {
    const auto fail = [&](const std::string& why) {
      thrown[rank] = std::current_exception();
      ranks->fail(rank, why);
    };
    try {
      ThreadWorld world(ranks, rank);
      body(world);
    } catch (const std::exception& error) {
      fail(error.what());
    } catch (...) {
      fail("it threw something that is no std::exception");
    }
    ranks->end(rank);
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < num_ranks; ++rank) threads.emplace_back(run, rank);
  } catch (const std::exception& error) {  // no more threads to be had
    ranks->fail(int(threads.size()), str_cat("its thread could not start: ", error.what()));
  }
  for (std::thread& thread : threads) thread.join();
  const std::optional<int> failed = ranks->failed_rank();
  if (failed && thrown[*failed]) std::rethrow_exception(thrown[*failed]);
  ranks->throw_if_failed(-1);
}

}  // namespace phx
