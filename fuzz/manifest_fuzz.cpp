// Manifests of checkpoints: any text is a manifest that a reader can rely on, or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool framed : {false, true}) {
    try {
      const phx::Manifest manifest = framed ? phx::Manifest::parse(text, "manifest.json")
                                            : phx::Manifest::parse_body(text, "manifest.json");
      manifest.check_complete("manifest.json");
      // What was taken is written and read again as the same.
      const std::string again = manifest.to_text();
      if (phx::Manifest::parse(again, "again").to_text() != again) __builtin_trap();
    } catch (const phx::Error&) {
    }
  }
  return 0;
}
