#include "comm/tcp_store.h"

#include <cstring>
#include <exception>

#include "comm/byte_transport.h"
#include "comm/tcp_store_server.h"

namespace phx {

using namespace store_wire;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return as_bytes(text); }

template <class T>
std::string text_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options) : options_(options) {
  PHX_CHECK(!options.host.empty(),
            "the TCP store needs the address of rank 0's machine: set MASTER_ADDR");
  if (options_.rank == 0) server_ = std::make_unique<TcpStoreServer>(options_.port, options_.size);
  arrive();
}

void TcpStore::arrive() {
  const auto seconds = std::chrono::duration<double>(options_.timeout).count();
  try {
    socket_ = connect_to(options_.rank == 0 ? "127.0.0.1" : options_.host, options_.port,
                         deadline_in(options_.timeout));
  } catch (const Stalled& stalled) {
    throw_error(
        str_cat("rank ", options_.rank, " of ", options_.size, " found no rank 0 within ", seconds,
                " s: ", stalled.what(),
                "\n  hint: rank 0 may not have started, or MASTER_ADDR and MASTER_PORT name "
                "another machine"));
  }
  const int32_t who[2] = {options_.rank, options_.size};
  const Reply welcome = ask(store_wire::hello, "", text_of(who), options_.timeout);
  PHX_CHECK(welcome.status == ok, "the TCP store at ", options_.host, ":", options_.port,
            " does not take this rank: ", welcome.value,
            "\n  hint: another run may use the port; set PHX_STORE_PORT or MASTER_PORT");
  const Reply all = ask(store_wire::get, kArrived, "", options_.timeout);
  if (all.status == failed) throw_error(all.value);
  if (all.status == ok) return;
  const std::string why = str_cat(all.value, " of ", options_.size, " did not arrive at ",
                                  options_.host, ":", options_.port, " within ", seconds, " s");
  try {
    fail(why);  // so that all who are here say the same
  } catch (const Error&) {
    // Rank 0 was as impatient, and has gone.
  }
  throw_error(why);
}

TcpStore::~TcpStore() {
  const bool leaving_well = !abandoned_ && std::uncaught_exceptions() == 0;
  try {
    if (broken_.empty() && leaving_well) ask(store_wire::goodbye, "", "", std::chrono::seconds(5));
  } catch (const std::exception&) {
    // Nobody is left to say goodbye to.
  }
  if (server_ && leaving_well) server_->wait_for_goodbyes(deadline_in(options_.timeout));
}

TcpStore::Reply TcpStore::ask(uint8_t what, const std::string& key, const std::string& value,
                              std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  PHX_CHECK(broken_.empty(), broken_);
  // The server keeps the time; it is given some more to answer.
  const Deadline deadline = deadline_in(timeout + std::chrono::seconds(10));
  const std::string who = str_cat("rank 0's TCP store at ", options_.host, ":", options_.port);
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
