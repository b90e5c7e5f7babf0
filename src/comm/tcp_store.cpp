#include "phalanx/comm/tcp_store.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/machine_key.h"
#include "phalanx/comm/network.h"
#include "phalanx/comm/tcp_store_server.h"
#include "phalanx/comm/wait_report.h"

namespace phx {

using namespace store_wire;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return as_bytes(text); }

template <class T>
std::string text_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options)
    : options_(options), deadline_(deadline_in(options.timeout)) {
  PHX_CHECK(!options.hosts.empty() && !options.hosts.front().empty(),
            "the TCP store needs the address of rank 0's machine: set MASTER_ADDR");
  if (options_.rank == 0) server_ = std::make_unique<TcpStoreServer>(options_);
  WaitReport report(options_.report_every, options_.timeout);
  arrive(report);
  wait_for_all(report);
}

FileHandle TcpStore::call_rank_zero(const OnWait& on_wait) {
  return call({.what = "rank 0's TCP store",
               .hosts = options_.hosts,
               .port = options_.port,
               .key = options_.key.with(store_wire::kPurpose),
               .own_rank = options_.rank},
              deadline_, on_wait);
}

// Who reads what an earlier run left is refused, and reads again: rank 0 replaces it as it starts.
FileHandle TcpStore::call_with_machine_key(const OnWait& on_wait) {
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    std::string why = str_cat("it has left no key in ", options_.key_file.string());
    if (const auto secret = read_machine_key(options_.key_file)) {
      options_.key = JobKey(*secret);
      try {
        return call_rank_zero(on_wait);
      } catch (const AnotherKey&) {
        why = str_cat("the one at ", endpoint(options_.hosts, options_.port),
                      " has another key than ", options_.key_file.string());
      }
    }
    if (milliseconds_until(deadline_) == 0) throw Stalled(why);
    on_wait(why);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(500));
  }
}

void TcpStore::arrive(WaitReport& report) {
  const auto on_wait = [&](const std::string& why) {
    report.say(str_cat("rank ", options_.rank, " waits for rank 0: ", why));
  };
  const bool reads_key = options_.rank != 0 && !options_.key_file.empty();
  try {
    socket_ = reads_key ? call_with_machine_key(on_wait) : call_rank_zero(on_wait);
  } catch (const Stalled& stalled) {
    throw_error(str_cat("rank ", options_.rank, " of ", options_.size, " found no rank 0 within ",
                        seconds_of(options_.timeout), " s: ", stalled.what(),
                        "\n  hint: rank 0 may not have started, a firewall may close the port, or "
                        "MASTER_ADDR and MASTER_PORT name another machine"));
  }
  watch_over(socket_, silence_limit(options_.timeout));
  const int32_t who[2] = {options_.rank, options_.size};
  const Reply welcome = ask(store_wire::hello, "", text_of(who) + host_name(), options_.timeout);
  PHX_CHECK(welcome.status == ok, "the TCP store at ", endpoint(options_.hosts, options_.port),
            " does not take this rank: ", welcome.value,
            "\n  hint: another run may use the port; choose a free one with --master-port, "
            "MASTER_PORT or PHX_STORE_PORT");
}

void TcpStore::wait_for_all(WaitReport& report) {
  while (true) {
    std::chrono::milliseconds slice(milliseconds_until(deadline_));
    const bool last = report.every().count() == 0 || slice <= report.every();
    if (!last) slice = report.every();
    const Reply all = ask(store_wire::get, kArrived, "", slice);
    if (all.status == failed) throw_error(all.value);
    if (all.status == ok) return;
    if (!last) {
      report.say(str_cat("rank ", options_.rank, " waits for ", all.value));
      continue;
    }
    const std::string why =
        str_cat(all.value, " did not arrive at ", endpoint(options_.hosts, options_.port),
                " within ", seconds_of(options_.timeout), " s");
    try {
      fail(why);  // so that all who are here say the same
    } catch (const Error&) {
      // Rank 0 was as impatient, and has gone.
    }
    throw_error(why);
  }
}

std::chrono::seconds silence_limit(std::chrono::milliseconds timeout) {
  using std::chrono::seconds;
  return std::clamp(std::chrono::duration_cast<seconds>(timeout / 2), seconds(5), seconds(60));
}

TcpStore::~TcpStore() {
  if (!abandoned_ && std::uncaught_exceptions() == 0) leave();
}

void TcpStore::leave() {
  if (std::exchange(left_, true)) return;
  try {
    if (broken_.empty()) ask(store_wire::goodbye, "", "", std::chrono::seconds(5));
  } catch (const std::exception&) {
    // Nobody is left to say goodbye to.
  }
  if (server_) server_->wait_for_goodbyes(deadline_in(options_.timeout));
}

TcpStore::Reply TcpStore::ask(uint8_t what, const std::string& key, const std::string& value,
                              std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  PHX_CHECK(broken_.empty(), broken_);
  // The server keeps the time; it is given some more to answer.
  const Deadline deadline = deadline_in(timeout + std::chrono::seconds(10));
  const std::string who =
      str_cat("rank 0's TCP store at ", endpoint(options_.hosts, options_.port));
  try {
    const RequestHeader header{.kind = what,
                               .key_bytes = uint32_t(key.size()),
                               .value_bytes = uint32_t(value.size()),
                               .timeout_ms = timeout.count()};
    send_all(socket_, bytes_of(text_of(header) + key + value), deadline, who);
    ReplyHeader answer;
    receive_all(socket_, std::as_writable_bytes(std::span(&answer, 1)), deadline, who);
    Reply reply{uint8_t(answer.status), std::string(answer.value_bytes, '\0')};
    receive_all(socket_, std::as_writable_bytes(std::span(reply.value)), deadline, who);
    return reply;
  } catch (const Error& error) {
    broken_ = str_cat("rank 0 died: ", error.what());
    socket_ = {};
    throw_error(broken_);
  }
}

void TcpStore::set(const std::string& key, const std::string& value) {
  ask(store_wire::set, key, value, options_.timeout);
}

std::string TcpStore::get(const std::string& key) { return get(key, options_.timeout); }

std::string TcpStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  Reply reply = ask(store_wire::get, key, "", timeout);
  if (reply.status == failed) throw_error(reply.value);
  if (reply.status != ok)
    throw Stalled(str_cat("nobody put '", key, "' into the TCP store within ",
                          std::chrono::duration<double>(timeout).count(), " s"));
  return std::move(reply.value);
}

std::optional<std::string> TcpStore::find(const std::string& key) {
  Reply reply = ask(store_wire::find, key, "", options_.timeout);
  return reply.status == ok ? std::optional(std::move(reply.value)) : std::nullopt;
}

void TcpStore::fail(const std::string& why) {
  abandoned_ = true;
  ask(store_wire::fail, "", why, std::chrono::seconds(5));
}

std::optional<std::string> TcpStore::failure() {
  try {
    return find(kFailure);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace phx
