// The key of ranks that are all on one machine, when nobody gave them one: rank 0 makes it and
// leaves it in a file that only the same user can read. Other users of the machine cannot join.
#pragma once

#include <optional>
#include <string>

#include "phalanx/base/file.h"

namespace phx {

// A folder of this user alone: in memory (/dev/shm), or else among temporary files. Makes it if it
// is not there. Throws if it is another user's, or a link; `hint` says what to do then.
Path private_folder(const std::string& name, const std::string& hint);

// Where rank 0 of the run with this port leaves the key.
Path machine_key_file(int port);

// The file is there while this lives, and takes the place of one that an earlier run left. To be
// made and ended by the one who listens on the port: then no other run has the same file.
class MachineKeyFile {
 public:
  MachineKeyFile(const Path& file, const std::string& secret);
  ~MachineKeyFile();
  MachineKeyFile(const MachineKeyFile&) = delete;
  MachineKeyFile& operator=(const MachineKeyFile&) = delete;

 private:
  Path file_;
};

// None if there is no such file yet. Throws if others than this user could have written or read it.
std::optional<std::string> read_machine_key(const Path& file);

}  // namespace phx
