// A tokenizer.json from anywhere: loading it either works or ends in an Error, and a tokenizer that
// loads encodes and decodes any text. The input is the file, a zero byte, and the text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/hugging_face.h"
#include "phalanx/text/tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view json = input.substr(0, zero);
  const std::string_view text = zero == input.npos ? "The Größe 中 1.\n" : input.substr(zero + 1);
  try {
    const auto tokenizer = phx::parse_hugging_face(json, {.eos = "</s>"}, "fuzz");
    std::vector<int32_t> ids;
    tokenizer->encode_with_special(text, ids);
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) __builtin_trap();
    }
    const std::string decoded = tokenizer->decode(ids);
    std::string storage;
    if (phx::valid_utf8(decoded, storage) != decoded) __builtin_trap();
    phx::StreamDecoder stream(*tokenizer);
    for (const int32_t id : ids) stream.push(id);
    stream.finish();
  } catch (const phx::Error&) {
  }
  return 0;
}
