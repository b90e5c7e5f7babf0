// The types of token that Megatron's .idx files name, by their code.
#pragma once

#include <cstdint>
#include <optional>

namespace phx {

enum class TokenCode : uint8_t {
  u8 = 1,
  i8 = 2,
  i16 = 3,
  i32 = 4,
  i64 = 5,
  f64 = 6,
  f32 = 7,
  u16 = 8,
};

// None if the code stands for nothing.
constexpr std::optional<int> size_of_code(uint8_t code) {
  switch (TokenCode{code}) {
    case TokenCode::u8:
    case TokenCode::i8:
      return 1;
    case TokenCode::i16:
    case TokenCode::u16:
      return 2;
    case TokenCode::i32:
    case TokenCode::f32:
      return 4;
    case TokenCode::i64:
    case TokenCode::f64:
      return 8;
  }
  return std::nullopt;
}
constexpr int size_of_code(TokenCode code) { return *size_of_code(uint8_t(code)); }

// As NumPy calls it: "uint16".
constexpr const char* name_of_code(TokenCode code) {
  switch (code) {
    case TokenCode::u8:
      return "uint8";
    case TokenCode::i8:
      return "int8";
    case TokenCode::i16:
      return "int16";
    case TokenCode::i32:
      return "int32";
    case TokenCode::i64:
      return "int64";
    case TokenCode::f64:
      return "float64";
    case TokenCode::f32:
      return "float32";
    case TokenCode::u16:
      return "uint16";
  }
  return "unknown";
}

// What Megatron's preprocessing takes for a vocabulary of this size.
constexpr TokenCode code_for_vocabulary(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenCode::u16 : TokenCode::i32;
}

}  // namespace phx
