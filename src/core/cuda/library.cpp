#include "phalanx/core/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "phalanx/base/error.h"

namespace phx::cuda {

namespace {

std::vector<std::string> folders() {
  std::vector<std::string> found = {""};  // the linker's own search
  if (const char* paths = std::getenv("LD_LIBRARY_PATH")) {
    std::istringstream in(paths);
    for (std::string folder; std::getline(in, folder, ':');)
      if (!folder.empty()) found.push_back(folder + "/");
  }
  found.push_back("/usr/local/cuda/lib64/");
  return found;
}

}  // namespace

Library::Library(std::string title, std::initializer_list<const char*> file_names)
    : title_(std::move(title)) {
  std::string said;  // what the linker said about the first name: later ones say the same
  for (const std::string& folder : folders()) {
    for (const char* file : file_names) {
      handle_ = dlopen((folder + file).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        path_ = folder + file;
        return;
      }
      const char* why = dlerror();
      if (said.empty() && why != nullptr) said = why;
    }
  }
  std::string names;
  for (const char* file : file_names) names += (names.empty() ? "" : " or ") + std::string(file);
  throw_error(str_cat(title_, " is missing: found no ", names,
                      " where the dynamic linker looks, in LD_LIBRARY_PATH or in "
                      "/usr/local/cuda/lib64 (",
                      said, ")\n  hint: add its folder to LD_LIBRARY_PATH"));
}

void* Library::symbol(const char* name) const {
  void* found = dlsym(handle_, name);
  PHX_CHECK(found != nullptr, title_, " (", path_, ") has no function ", name,
            "; a newer version of it is needed");
  return found;
}

}  // namespace phx::cuda
