#include "phalanx/comm/mesh_connections.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <sstream>

#include "phalanx/base/log.h"
#include "phalanx/comm/arrivals.h"
#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/network.h"
#include "phalanx/comm/rank_list.h"
#include "phalanx/comm/rendezvous.h"
#include "phalanx/comm/wait_report.h"

namespace phx {

namespace {

using std::chrono::milliseconds;

constexpr auto kReportEvery = std::chrono::seconds(5);
// The time-out counts from a rank's start. This much is left even if the last one came late.
constexpr milliseconds kLeast = std::chrono::seconds(30);

constexpr milliseconds kSlice = std::chrono::seconds(1);  // for which the store is kept busy

// Whether a rank has failed meanwhile; looks into the store once a second.
class FailureWatch {
 public:
  explicit FailureWatch(TcpStore& store) : store_(store) {}
  std::optional<std::string> look() {
    if (milliseconds_until(next_) > 0) return std::nullopt;
    next_ = deadline_in(std::chrono::seconds(1));
    return store_.failure();
  }

 private:
  TcpStore& store_;
  Deadline next_ = deadline_in(std::chrono::seconds(1));
};

// Where a rank listens, as it says in the store: its port, its machine, and its addresses. A rank
// beside rank 0 gives no address: the others know how they reached that machine.
struct Entry {
  int port = 0;
  std::string machine;
  Hosts hosts;

  std::string text() const {
    std::string result = str_cat(port, " ", machine);
    for (const std::string& host : hosts) result += " " + host;
    return result;
  }
  static Entry read(const std::string& text) {
    std::istringstream in(text);
    Entry entry;
    in >> entry.port >> entry.machine;
    for (std::string host; in >> host;) entry.hosts.push_back(host);
    return entry;
  }
};

std::string entry_name(int rank) { return str_cat("mesh/address/", rank); }

// A call that ends at another rank than it was meant for is refused.
JobKey key_of_listener(const JobKey& key, int rank) { return key.with(str_cat("rank ", rank)); }

// Each rank listens, calls those below it, and at the same time waits for those above.
class Connecting {
 public:
  Connecting(const LaunchEnvironment& environment, TcpStore& store,
             std::chrono::milliseconds timeout)
      : environment_(environment),
        store_(store),
        timeout_(timeout),
        deadline_(std::max(store.deadline(), deadline_in(std::min(timeout, kLeast)))),
        rank_(environment.rank),
        size_(environment.size),
        connections_(environment.size) {}

  std::vector<MeshConnection> run() {
    Listener listener = listen_and_publish();
    // The key of these connections is the job's with something that only this world's store knows.
    const JobKey key = store_.key().with("mesh " + look_up("mesh/token", 0));
    Arrivals arrivals(std::move(listener), key_of_listener(key, rank_), str_cat("rank ", rank_),
                      // All may call in one moment, from one address.
                      Arrivals::Limits{.strangers = std::max<size_t>(256, size_t(size_))});
    auto above = std::async(std::launch::async, [&] { return wait_for_above(arrivals); });
    try {
      read_entries();
      call_below(key);
    } catch (...) {
      stop_ = true;
      throw;
    }
    const std::string problem = above.get();
    PHX_CHECK(problem.empty(), problem);
    for (const MeshConnection& connection : connections_)
      if (connection.socket.is_open()) watch_over(connection.socket, silence_limit(timeout_));
    return std::move(connections_);
  }

 private:
  Listener listen_and_publish() {
    const Hosts addresses = addresses_to_listen_on(environment_);
    const int port = environment_.mesh_port;
    Listener listener = listen_on(port == 0 ? 0 : port + environment_.local_rank, addresses);
    Entry entry{.port = listener.port, .machine = host_name(), .hosts = addresses};
    if (environment_.one_machine || addresses.empty()) {
      const std::string own = store_.own_address();
      entry.hosts = is_loopback(own) ? Hosts{} : Hosts{own};
    }
    if (rank_ == 0) store_.set("mesh/token", make_job_key());
    store_.set(entry_name(rank_), entry.text());
    return listener;
  }

  // What `rank` puts into the store once it listens. The store is free for others now and then.
  std::string look_up(const std::string& name, int rank) {
    while (true) {
      try {
        return store_.get(name, std::min(kSlice, milliseconds(milliseconds_until(deadline_))));
      } catch (const Stalled&) {
        if (milliseconds_until(deadline_) == 0)
          throw_error(str_cat("rank ", rank,
                              " has arrived, but does not say where it listens: rank ", rank_,
                              " waited for ", seconds(), " s"));
        look_up_report_.say(str_cat("rank ", rank_, " waits for rank ", rank,
                                    ", which has arrived, to say where it listens"));
      }
    }
  }

  void read_entries() {
    // Those above call; on several machines their names are for messages.
    entries_.resize(environment_.one_machine ? rank_ : size_);
    for (int r = 0; r < int(entries_.size()); ++r) {
      if (r == rank_) continue;
      entries_[r] = Entry::read(look_up(entry_name(r), r));
      if (entries_[r].hosts.empty()) entries_[r].hosts = {store_.address_of_rank_zero()};
      if (!environment_.one_machine)
        connections_[r].where =
            str_cat(" on ", entries_[r].machine, " (", entries_[r].hosts[0], ")");
    }
  }

  void call_below(const JobKey& key) {
    WaitReport report(kReportEvery, timeout_);
    FailureWatch watch(store_);
    for (int r = 0; r < rank_; ++r) {
      const std::string who = str_cat("rank ", r, connections_[r].where);
      const auto on_wait = [&](const std::string& why) {
        if (const auto failure = watch.look()) throw_error(*failure);
        report.say(str_cat("rank ", rank_, " waits for ", who, ": ", why));
      };
      try {
        connections_[r].socket = call({.what = who,
                                       .hosts = entries_[r].hosts,
                                       .port = entries_[r].port,
                                       .key = key_of_listener(key, r),
                                       .own_rank = rank_},
                                      deadline_, on_wait);
      } catch (const AnotherKey&) {
        throw_error(str_cat("whoever answers at ", endpoint(entries_[r].hosts, entries_[r].port),
                            " is not ", who, " of this run, though that is where it listens",
                            "\n  hint: machines or containers may share the address; --interface "
                            "and --mesh-port choose others"));
      } catch (const Stalled& stalled) {
        throw_error(str_cat("rank ", rank_, " cannot connect to ", who, " within ", seconds(),
                            " s: ", stalled.what(),
                            "\n  hint: a firewall may close the port (--mesh-port or PHX_MESH_PORT "
                            "chooses which are used), or --interface names the network that the "
                            "machines share"));
      }
    }
  }

  // Returns what is wrong, if somebody did not come. On a thread of its own: it touches only the
  // sockets of ranks above.
  std::string wait_for_above(Arrivals& arrivals) {
    constexpr auto kLook = std::chrono::milliseconds(200);
    WaitReport report(kReportEvery, timeout_);
    FailureWatch watch(store_);
    std::vector<int> missing;
    for (int r = rank_ + 1; r < size_; ++r) missing.push_back(r);
    while (!missing.empty() && !stop_) {
      auto arrival = arrivals.next(std::min(deadline_, deadline_in(kLook)));
      if (arrival) {
        if (arrival->rank <= rank_ || arrival->rank >= size_) {
          log_warning(str_cat("rank ", rank_, " hung up on rank ", arrival->rank, " at ",
                              arrival->address, ": only ranks above ", rank_, " and below ", size_,
                              " call it"));
          continue;
        }
        // The latest counts: one that calls again had lost patience before it heard us.
        connections_[arrival->rank].socket = std::move(arrival->socket);
        std::erase(missing, arrival->rank);
      } else if (milliseconds_until(deadline_) == 0) {
        return str_cat(rank_list(missing), " did not connect to rank ", rank_, " within ",
                       seconds(), " s");
      } else if (const auto failure = watch.look()) {
        return *failure;
      } else {
        report.say(str_cat("rank ", rank_, " waits for connections of ", rank_list(missing)));
      }
    }
    return "";
  }

  double seconds() const { return std::chrono::duration<double>(timeout_).count(); }

  const LaunchEnvironment& environment_;
  TcpStore& store_;
  const std::chrono::milliseconds timeout_;
  const Deadline deadline_;
  const int rank_, size_;
  std::vector<MeshConnection> connections_;
  std::vector<Entry> entries_;
  WaitReport look_up_report_{kReportEvery, timeout_};
  std::atomic<bool> stop_ = false;
};

}  // namespace

std::vector<MeshConnection> connect_to_all(const LaunchEnvironment& environment, TcpStore& store,
                                           std::chrono::milliseconds timeout) {
  return Connecting(environment, store, timeout).run();
}

}  // namespace phx
