// A folder that is replaced in one go, as AtomicFile is for a file: under its name are all of the
// old files or all of the new ones, even if the machine stops halfway.
#pragma once

#include "phalanx/base/file.h"

namespace phx {

// Its files are written into `temporary`, a new empty folder beside `path`; each is on disk when
// `commit` is called. Without a commit `path` stays what it was, and the temporary folder stays
// until the next AtomicFolder of this name.
//
// On a file system that cannot exchange two names (NFS) there is a moment without anything under
// `path`: what was there has the name `replaced` then, and the next AtomicFolder gives it back its
// own.
class AtomicFolder {
 public:
  explicit AtomicFolder(const Path& path, Disk& disk = Disk::real());
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const Path& path() const { return path_; }
  const Path& temporary() const { return temporary_; }  // path.phalanx-partial
  void commit();

 private:
  void put_in_place();
  void replace_in_two_steps();

  Path path_, temporary_, replaced_;  // replaced: path.phalanx-replaced
  Disk& disk_;
};

// Gives what was being replaced when the machine stopped its name back. For those who look at the
// folder before they replace it; an AtomicFolder does it, too.
void recover_folder(const Path& path, Disk& disk = Disk::real());

// A file, or a folder and all that is in it; no error when there is nothing. Links are not
// followed.
void remove_tree(const Path& path, Disk& disk = Disk::real());

}  // namespace phx
