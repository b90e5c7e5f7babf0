// A mapped file that becomes shorter, or whose disk fails, under the program: the system sends
// SIGBUS to whoever reads the lost pages. Here that becomes an error with the file's name.
//
// Reads stay plain loads and cost nothing more. Who reads mapped files in a long run does so in the
// mode `note`: lost pages read as zeros, and check_mapped_files(), called before what was read is
// used, throws. Everybody else ends with a message when it happens.
//
// Process-wide, as signal handlers are. Every MappedFile (base/file.h) is known here.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <string>

namespace phx {

enum class OnMappedFault { end_program, note };

// Installs the handler, and says what it does from now on.
void handle_mapped_faults(OnMappedFault what);

// Throws if bytes of a file that is mapped, or was when it was last read, are gone: its pages were
// lost, or it is shorter than when it was opened (the rest of its last page reads as zeros without
// a signal). Lost pages are found at once, and so are sizes of up to 64 files; of more than these
// every check looks at some, in turns.
void check_mapped_files();

// For MappedFile. `info` is the file's, as it was opened.
void add_mapping(const std::byte* begin, size_t size, const std::string& path,
                 const struct stat& info);
void remove_mapping(const std::byte* begin);

}  // namespace phx
