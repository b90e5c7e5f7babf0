#include "phalanx/comm/process_ledgers.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <system_error>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/comm/machine_key.h"

namespace phx {

namespace {
constexpr const char* kFirstFailure = "first-failure";
}

ProcessLedgers::ProcessLedgers(const LaunchEnvironment& environment) : environment_(environment) {
  if (const char* given = std::getenv("PHX_LEDGER_DIR"); given != nullptr && *given != '\0') {
    folder_ = given;
    make_folder(folder_);
  } else {
    folder_ = private_folder(str_cat("phalanx-ledgers-", ::geteuid(), "-", environment.store_port),
                             "set PHX_LEDGER_DIR to a folder of your own");
  }
  if (environment.rank == 0) {  // of a run before this one
    std::error_code ignored;
    std::filesystem::remove(folder_ / kFirstFailure, ignored);
  }
  try {
    own_ = std::make_unique<Ledger>(environment.rank, file_of(environment.rank));
  } catch (const Error& error) {
    log_warning(str_cat(error.what(),
                        "\n  the run goes on; if it stalls, other ranks cannot see what rank ",
                        environment.rank, " did"));
    own_ = std::make_unique<Ledger>(environment.rank);
    in_memory_ = true;
  }
}

ProcessLedgers::~ProcessLedgers() {
  if (keep_ || std::uncaught_exceptions() > 0) return;
  std::error_code ignored;
  std::filesystem::remove(file_of(environment_.rank), ignored);
  std::filesystem::remove(folder_, ignored);  // the last one; a folder with files stays
}

void ProcessLedgers::note_first_failure() noexcept {
  const std::string text = std::to_string(environment_.rank);
  const FileHandle file(
      ::open((folder_ / kFirstFailure).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file.is_open()) (void)!::write(file.get(), text.data(), text.size());
}

std::optional<int> ProcessLedgers::first_failure(const Path& folder) {
  int rank = -1;
  return std::ifstream(folder / kFirstFailure) >> rank ? std::optional(rank) : std::nullopt;
}

RankLedgers::View ProcessLedgers::read(int world_rank) {
  if (in_memory_ && world_rank == environment_.rank) return {.entries = own_->entries()};
  const Path file = file_of(world_rank);
  try {
    return {.entries = read_ledger(file)};
  } catch (const Error&) {
    // Each rank makes its file before it first talks to another: one that is gone has been removed.
    // One that is there and holds nothing found no room on the disk.
    const bool gone = !std::filesystem::exists(file);
    if (gone && !in_memory_ && same_machine(world_rank)) return {.ended = true};
    return {.readable = false};
  }
}

Path ProcessLedgers::file_of(int world_rank) const {
  return folder_ / str_cat("rank-", world_rank, ".ledger");
}

bool ProcessLedgers::same_machine(int world_rank) const {
  if (environment_.one_machine) return true;
  if (!environment_.numbered_in_turn) return world_rank == environment_.rank;
  const int first = environment_.rank - environment_.local_rank;
  return world_rank >= first && world_rank < first + environment_.local_size;
}

}  // namespace phx
