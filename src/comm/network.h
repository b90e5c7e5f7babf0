// The network interfaces of this machine.
#pragma once

#include <optional>
#include <string>

#include "phalanx/comm/socket.h"

namespace phx {

// The addresses of `interface`: its name ("eth0"), or one of this machine's addresses. IPv4 first;
// IPv6 addresses that hold on one link only are left out. Throws if there is no such interface, or
// if it has no address, and lists those that there are.
Hosts addresses_of_interface(const std::string& interface);

// The name of that interface.
std::string name_of_interface(const std::string& interface);

// Whether `host` means this machine, as far as can be told: none if its name is not known here.
std::optional<bool> is_this_machine(const std::string& host);

std::string host_name();  // of this machine, for messages

}  // namespace phx
