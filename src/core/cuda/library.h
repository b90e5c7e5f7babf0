// A shared library opened at first use, so that the program starts without it and runs on machines
// that do not have it.
//
//   Library lt("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so"});
//   auto create = lt.function<decltype(&cublasLtCreate)>("cublasLtCreate");
#pragma once

#include <initializer_list>
#include <string>

namespace phx::cuda {

class Library {
 public:
  // Tries the file names in order: as the dynamic linker finds them, then in the folders of
  // LD_LIBRARY_PATH and of the CUDA toolkit. Throws if there is none, naming all of these.
  Library(std::string title, std::initializer_list<const char*> file_names);
  // Never closed: libraries of CUDA leave threads and callbacks behind that need their code.
  ~Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Throws if the library has no such function (it is older than the one we were built for).
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(symbol(name));
  }
  const std::string& path() const { return path_; }

 private:
  void* symbol(const char* name) const;

  std::string title_, path_;
  void* handle_ = nullptr;
};

}  // namespace phx::cuda
