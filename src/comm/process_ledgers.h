// The ledgers of ranks that are processes: a file each, in one folder of the machine.
#pragma once

#include <memory>
#include <optional>

#include "phalanx/comm/launch_environment.h"
#include "phalanx/comm/ledger.h"

namespace phx {

class ProcessLedgers : public RankLedgers {
 public:
  // The folder is PHX_LEDGER_DIR, or one in memory (/dev/shm) named after the run's port. Without
  // room for the file the ledger is in memory, and only this rank can read it.
  explicit ProcessLedgers(const LaunchEnvironment& environment);
  // In good order the file goes; after a failure it stays, for whoever wants to know.
  ~ProcessLedgers() override;

  Ledger& own() override { return *own_; }
  View read(int world_rank) override;
  void keep() { keep_ = true; }  // something failed
  // This rank failed before it heard of another's failure: a file says so to the launcher, who may
  // see the others end first. Never throws.
  void note_first_failure() noexcept;
  static std::optional<int> first_failure(const Path& folder);

 private:
  Path file_of(int world_rank) const;
  bool same_machine(int world_rank) const;

  LaunchEnvironment environment_;
  Path folder_;
  std::unique_ptr<Ledger> own_;
  bool in_memory_ = false;
  bool keep_ = false;
};

}  // namespace phx
