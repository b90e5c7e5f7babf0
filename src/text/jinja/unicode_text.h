// Python's str over UTF-8: characters are code points. Text is valid UTF-8 throughout; whoever
// takes it in checks that (is_valid_utf8).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phx::jinja {

bool is_valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);

int64_t length_of(std::string_view text);                         // in code points
std::vector<std::string_view> characters(std::string_view text);  // one a code point
std::string_view first_character(std::string_view text);          // of one that is not empty
// The code points [begin, end); 0 <= begin <= end <= length.
std::string_view slice_of(std::string_view text, int64_t begin, int64_t end);
void append_code_point(char32_t code_point, std::string& text);
char32_t code_point(std::string_view character);

bool is_space(char32_t c);
bool is_letter(char32_t c);
bool is_digit(char32_t c);  // Python's isdecimal
bool is_cased_upper(char32_t c);
bool is_cased_lower(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);  // the first character in title case, the rest lower
std::string title(std::string_view text);       // str.title(), not the filter

// Without leading and trailing white space, or characters of `set`.
enum class Side { left, right, both };
std::string_view strip(std::string_view text, Side side = Side::both);
std::string_view strip(std::string_view text, std::string_view set, Side side);

std::vector<std::string_view> split_words(std::string_view text);  // split() without a separator
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

std::string quote(std::string_view text);  // repr(): 'it\'s' with Python's choice of quotes

}  // namespace phx::jinja
