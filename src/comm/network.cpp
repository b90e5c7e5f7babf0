#include "phalanx/comm/network.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <utility>

#include "phalanx/base/error.h"

namespace phx {

namespace {

std::string address_of(const sockaddr* address) {
  char text[NI_MAXHOST];
  const socklen_t length =
      address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const int status = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? text : "";
}

bool is_of_one_link(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

struct Interface {
  Hosts four, six;
};

std::map<std::string, Interface> interfaces() {
  ifaddrs* list = nullptr;
  PHX_CHECK(::getifaddrs(&list) == 0,
            "the network interfaces cannot be read: ", system_text(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::map<std::string, Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    Interface& interface = found[at->ifa_name];
    if (at->ifa_addr == nullptr || is_of_one_link(at->ifa_addr)) continue;
    if (at->ifa_addr->sa_family == AF_INET) interface.four.push_back(address_of(at->ifa_addr));
    if (at->ifa_addr->sa_family == AF_INET6) interface.six.push_back(address_of(at->ifa_addr));
  }
  return found;
}

}  // namespace

namespace {

// Its name, and those of its addresses that are wanted.
std::pair<std::string, Hosts> find_interface(const std::string& wanted) {
  std::string list;
  for (const auto& [name, interface] : interfaces()) {
    Hosts all = interface.four;
    all.insert(all.end(), interface.six.begin(), interface.six.end());
    for (const std::string& address : all)
      if (address == wanted) return {name, {address}};
    if (name == wanted && !all.empty()) return {name, all};
    list += str_cat(list.empty() ? "" : ", ", name, " (", all.empty() ? "no address" : all[0], ")");
  }
  throw_error(
      str_cat("this machine has no network interface '", wanted,
              "' with an address\n  hint: --interface (or PHX_INTERFACE) takes one of: ", list));
}

}  // namespace

Hosts addresses_of_interface(const std::string& interface) {
  return find_interface(interface).second;
}
std::string name_of_interface(const std::string& interface) {
  return find_interface(interface).first;
}

std::optional<bool> is_this_machine(const std::string& host) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    // Only an own address can be bound.
    const FileHandle socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.is_open() && ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0) return true;
  }
  return false;
}

std::string host_name() {
  char text[256] = "";
  if (::gethostname(text, sizeof text - 1) != 0) return "?";
  return text;
}

}  // namespace phx
