// phalanx template: chats through a chat template, with what is learned of them marked.
#pragma once

#include <span>
#include <string>

namespace phx {

int run_template(std::span<const std::string> args);

}  // namespace phx
