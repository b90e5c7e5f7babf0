#include "phalanx/base/file_kind.h"

#include <array>
#include <fstream>

namespace phx {

namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes, kind;
};

// The formats that turn up beside texts, tokenizers and checkpoints.
constexpr Magic kMagics[] = {
    {"\x1f\x8b"sv, "gzip data"},
    {"\x28\xb5\x2f\xfd"sv, "zstd data"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz data"},
    {"BZh"sv, "bzip2 data"},
    {"PK\x03\x04"sv, "a zip archive (or a PyTorch file)"},
    {"GGUF"sv, "a GGUF model"},
    {"PAR1"sv, "a Parquet file"},
    {"ARROW1"sv, "an Arrow file"},
    {"MMIDIDX\0\0"sv, "an index of tokens (.idx)"},
    {"\x7f"
     "ELF"sv,
     "a program"},
    {"%PDF-"sv, "a PDF document"},
    {"\x89PNG"sv, "a PNG picture"},
    {"SQLite format"sv, "an SQLite database"},
};

}  // namespace

std::string_view binary_kind(std::string_view first_bytes) {
  for (const Magic& magic : kMagics)
    if (first_bytes.starts_with(magic.bytes)) return magic.kind;
  return {};
}

std::string_view binary_kind_of(const Path& path) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) return {};
  std::array<char, 16> bytes{};
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), bytes.size());
  return binary_kind({bytes.data(), size_t(in.gcount())});
}

}  // namespace phx
