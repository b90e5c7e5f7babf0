// Regular expressions of tokenizers, which are written for Oniguruma (Hugging Face) or Rust
// (tiktoken), on PCRE2 with its JIT. What means something else there is rewritten: \s, \w, \h and
// \b, `^` and `$` at lines, (?m), and \p{..} by the Unicode version of the original. What cannot be
// rewritten exactly is an error.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace phx {

enum class RegexFlavor { oniguruma, rust };  // whose words a pattern is written in

class Regex {
 public:
  explicit Regex(const std::string& pattern, RegexFlavor flavor = RegexFlavor::oniguruma);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // The first match of `text` (valid UTF-8) at `from` or after it. Threads may share a Regex.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  const std::string& pattern() const { return pattern_; }  // as it was given

 private:
  struct Program;
  std::string pattern_;
  std::unique_ptr<Program> program_;
};

// The same pattern in PCRE2's words (UTF and UCP on).
std::string to_pcre2(const std::string& pattern, RegexFlavor flavor);

}  // namespace phx
