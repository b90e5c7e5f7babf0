// Compressed texts for tests.
#pragma once

#include <zlib.h>
#include <zstd.h>

#include <string>

namespace phx {

inline std::string gzipped(const std::string& text) {
  std::string out(text.size() + 1000, '\0');
  z_stream zlib{};
  ::deflateInit2(&zlib, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = uInt(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(out.data());
  zlib.avail_out = uInt(out.size());
  ::deflate(&zlib, Z_FINISH);
  ::deflateEnd(&zlib);
  return out.substr(0, out.size() - zlib.avail_out);
}

inline std::string zstandard(const std::string& text) {
  std::string out(::ZSTD_compressBound(text.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

}  // namespace phx
