#include "phalanx/cli/build_info.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include "phalanx/base/math.h"

namespace phx {

namespace {

// The note with the linker's number among the notes from `at` to `end`.
std::string id_in_notes(const char* at, const char* end) {
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* name = at + sizeof note;
    const char* text = name + round_up(note.n_namesz, 4);
    const char* next = text + round_up(note.n_descsz, 4);
    if (next > end) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string id;
      for (const char* byte = text; byte < text + note.n_descsz; ++byte)
        id += fmt::format("{:02x}", static_cast<unsigned char>(*byte));
      return id;
    }
    at = next;
  }
  return "";
}

// The first object that is listed is the program itself.
int look_at_program(dl_phdr_info* object, size_t, void* out) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    std::string id = id_in_notes(begin, begin + segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(out) = std::move(id);
  }
  return 1;
}

}  // namespace

std::string program_version() { return PHX_VERSION; }

std::string build_id() {
  std::string id;
  ::dl_iterate_phdr(look_at_program, &id);
  return id;
}

}  // namespace phx
