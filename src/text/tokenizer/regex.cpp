#define PCRE2_CODE_UNIT_WIDTH 8
#include "phalanx/text/tokenizer/regex.h"

#include <pcre2.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

// Oniguruma's ^ and $ are those of lines, Rust's those of the text.
uint32_t options_of(RegexFlavor flavor) {
  return PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C |
         (flavor == RegexFlavor::oniguruma ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
}

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

pcre2_code* compile(const std::string& pattern, RegexFlavor flavor) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   options_of(flavor), &error, &offset, nullptr);
  PHX_CHECK(code != nullptr, "the regular expression ", pattern, " is wrong at ", offset, ": ",
            message_of(error));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT it is slower, not wrong
  return code;
}

// What a thread needs to match; one match data fits all, since only the whole match is asked for.
struct Matcher {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr);

  Matcher() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~Matcher() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

Matcher& matcher() {
  thread_local Matcher instance;
  return instance;
}

std::string hex(uint32_t code) {
  char text[16];
  std::snprintf(text, sizeof text, "\\x{%x}", code);
  return text;
}

// Ranges that PCRE2's tables lack in \p{name}, written for a class. What they have too much (a
// category that changed) does not happen from an older to a newer version in practice, and is
// checked.
std::string missing_ranges(const std::string& name) {
  static std::mutex lock;
  static std::map<std::string, std::string> known;
  const std::lock_guard guard(lock);
  const auto [entry, fresh] = known.try_emplace(name);
  if (!fresh) return entry->second;

  std::string all;  // every code point but surrogates
  for (uint32_t code = 1; code < kNumCodes; ++code) {
    if (code < 0xD800 || code > 0xDFFF) append_code(all, code);
  }
  std::vector<bool> theirs(kNumCodes);
  pcre2_code* code = compile("\\p{" + name + "}+", RegexFlavor::rust);
  Matcher& m = matcher();
  for (size_t from = 0; pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(all.data()), all.size(),
                                    from, PCRE2_NO_UTF_CHECK, m.data, m.context) >= 0;) {
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(m.data);
    for (size_t at = found[0]; at < found[1];) theirs[next_code(all, at)] = true;
    from = found[1];
  }
  pcre2_code_free(code);
  for (const CodeRange& range : category_ranges(name)) {
    for (uint32_t c = range.first; c <= range.last; ++c) {
      if (c == 0 || theirs[c]) continue;
      const uint32_t first = c;
      while (c < range.last && !theirs[c + 1]) ++c;
      if (first >= 0xD800 && c <= 0xDFFF) continue;
      entry->second += hex(first);
      if (c > first) entry->second += str_cat("-", hex(c));
    }
  }
  return entry->second;
}

constexpr const char* kSpaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

// Translates a pattern from left to right.
class Translator {
 public:
  Translator(const std::string& pattern, RegexFlavor flavor)
      : in_(pattern), ruby_(flavor == RegexFlavor::oniguruma) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_[at_] == '[') {
        out_ += char_class();
      } else if (in_.compare(at_, 2, "(?") == 0) {
        group();
      } else {
        out_ += in_[at_++];
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        str_cat("the regular expression ", in_, " uses ", what, ", which is not supported here"));
  }

  // What stands between the brackets of a class for \p{name}.
  std::string property(const std::string& name) const {
    const bool category = !category_ranges(name).empty();
    return "\\p{" + name + "}" + (category ? missing_ranges(name) : "");
  }
  enum class Where { alone, in_class };
  std::string word(Where where = Where::alone) const {
    // Alphabetic, marks, decimal digits, connectors; Latin-1's other numbers, or the joiners.
    return property("L") + property("M") + property("Nd") + property("Nl") + property("Pc") +
           "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}" +
           (!ruby_ ? "\\x{200c}\\x{200d}"
            // Oniguruma's fast path for Latin-1; its classes do not take it.
            : where == Where::alone ? "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
                                    : "");
  }

  // A shorthand at `at_`: what a class holds for it, and whether it is the complement. False when
  // the escape there is none.
  bool shorthand(Where where, std::string& set, bool& complement) {
    const char kind = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    complement = kind == 'S' || kind == 'W' || kind == 'D' || kind == 'H' || kind == 'P';
    switch (kind) {
      case 's':
      case 'S':
        set = kSpaces;
        break;
      case 'w':
      case 'W':
        set = word(where);
        break;
      case 'd':
      case 'D':
        set = property("Nd");
        break;
      case 'h':
      case 'H':
        if (!ruby_) return false;
        set = "0-9a-fA-F";
        break;
      case 'p':
      case 'P': {
        size_t begin = at_ + 2, end = begin;
        if (begin < in_.size() && in_[begin] == '{') {
          end = in_.find('}', ++begin);
        } else {
          end = begin + 1;
        }
        if (end == std::string::npos || end > in_.size()) refuse("\\p without a name");
        std::string name = in_.substr(begin, end - begin);
        if (!name.empty() && name[0] == '^') {
          complement = !complement;
          name.erase(0, 1);
        }
        set = property(name);
        at_ = in_[at_ + 2] == '{' ? end + 1 : end;
        return true;
      }
      default:
        return false;
    }
    at_ += 2;
    return true;
  }

  void escape() {
    std::string set;
    bool complement = false;
    if (shorthand(Where::alone, set, complement)) {
      out_ += str_cat(complement ? "[^" : "[", set, "]");
      return;
    }
    if (at_ + 1 >= in_.size()) refuse("a backslash at its end");
    const char kind = in_[at_ + 1];
    if (kind == 'b' || kind == 'B') {
      const std::string w = str_cat("[", word(), "]");
      out_ += kind == 'b' ? str_cat("(?:(?<=", w, ")(?!", w, ")|(?<!", w, ")(?=", w, "))")
                          : str_cat("(?:(?<=", w, ")(?=", w, ")|(?<!", w, ")(?!", w, "))");
      at_ += 2;
      return;
    }
    for (const char unknown : std::string_view("RXOKNGgykYcCM")) {
      if (kind == unknown) refuse(std::string("\\") + kind);
    }
    copy_escape(out_);
  }

  // \n, \., \x41, \x{41}, \u0041: the same character in PCRE2.
  void copy_escape(std::string& out) {
    const char kind = in_[at_ + 1];
    if (kind == 'u') {
      if (at_ + 6 > in_.size()) refuse("\\u with fewer than four digits");
      out += "\\x{" + in_.substr(at_ + 2, 4) + "}";
      at_ += 6;
    } else {
      const size_t length = 1 + code_length(kind);
      out += in_.substr(at_, length);
      at_ += length;
    }
  }

  // A whole class. Complements of shorthands inside of it become alternatives, because PCRE2 cannot
  // take away from a class.
  std::string char_class() {
    ++at_;
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    if (negated) ++at_;
    std::string inside;
    std::vector<std::string> alternatives;
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) refuse("a class without its end");
      const char c = in_[at_];
      if (c == ']' && !first) break;
      if (c == '[') {
        if (in_.compare(at_, 2, "[:") == 0) refuse("a POSIX class such as [:alpha:]");
        refuse("a class inside of a class");
      }
      if (in_.compare(at_, 2, "&&") == 0) refuse("an intersection of classes");
      if (c != '\\') {
        inside += c == ']' ? "\\]" : std::string(1, c);
        ++at_;
        continue;
      }
      std::string set;
      bool complement = false;
      if (!shorthand(Where::in_class, set, complement)) {
        if (at_ + 1 >= in_.size()) refuse("a backslash at its end");
        copy_escape(inside);
      } else if (complement) {
        alternatives.push_back("[^" + set + "]");
      } else {
        inside += set;
      }
    }
    ++at_;
    if (alternatives.empty()) return str_cat(negated ? "[^" : "[", inside, "]");
    if (!inside.empty()) alternatives.push_back("[" + inside + "]");
    std::string either = "(?:" + alternatives[0];
    for (size_t i = 1; i < alternatives.size(); ++i) either += "|" + alternatives[i];
    either += ")";
    return negated ? "(?:(?!" + either + ")(?s:.))" : either;
  }

  // Ruby's (?m) is what others call (?s).
  void group() {
    size_t end = at_ + 2;
    while (end < in_.size() && (std::isalpha(static_cast<uint8_t>(in_[end])) || in_[end] == '-')) {
      ++end;
    }
    if (end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) {
      out_ += "(?";
      at_ += 2;
      return;
    }
    std::string options = in_.substr(at_ + 2, end - at_ - 2);
    for (char& option : options) {
      if (ruby_ && option == 'm') {
        option = 's';
      } else if (option != 'i' && option != 'x' && option != '-' && (ruby_ || option != 's')) {
        refuse(std::string("the option ") + option);
      }
    }
    out_ += "(?" + options + in_[end];
    at_ = end + 1;
  }

  const std::string& in_;
  bool ruby_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

struct Regex::Program {
  pcre2_code* code;
  ~Program() { pcre2_code_free(code); }
};

Regex::Regex(const std::string& pattern, RegexFlavor flavor)
    : pattern_(pattern), program_(new Program{compile(to_pcre2(pattern, flavor), flavor)}) {}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  Matcher& m = matcher();
  const int found = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), from, PCRE2_NO_UTF_CHECK, m.data, m.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  PHX_CHECK(found >= 0, "the regular expression ", pattern_, " cannot be matched to a text of ",
            text.size(), " bytes: ", message_of(found));
  begin = pcre2_get_ovector_pointer(m.data)[0];
  end = pcre2_get_ovector_pointer(m.data)[1];
  return true;
}

std::string to_pcre2(const std::string& pattern, RegexFlavor flavor) {
  return Translator(pattern, flavor).run();
}

}  // namespace phx
