#include "phalanx/cli/convert_target.h"

#include "phalanx/base/error.h"

namespace phx {
namespace {

bool is_checkpoint(const Path& name) {
  return name == "latest_checkpointed_iteration.txt" ||
         (name.native().starts_with("iter_") && name.extension() != ".tmp");
}

}  // namespace

void check_holds_no_checkpoint(const char* flag, const Path& folder) {
  if (!std::filesystem::exists(folder)) return;
  PHX_CHECK(std::filesystem::is_directory(folder), flag, " ", folder.string(),
            " is no folder\n  hint: give the name of one that is new or empty");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const Path name = entry.path().filename();
    PHX_CHECK(!is_checkpoint(name), flag, " ", folder.string(), " holds checkpoints already (",
              name.string(),
              "): a conversion would change which of them is the newest\n  hint: give another "
              "folder, or remove this one if it is not needed");
  }
}

}  // namespace phx
