#include "phalanx/text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/charsmap.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/pattern.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// A normalizer that looks at one character at a time: `each(code, out)` appends what it becomes.
template <class Each>
class PerCode final : public Normalizer {
 public:
  explicit PerCode(Each each) : each_(std::move(each)) {}
  std::string apply(std::string_view text) const override {
    std::string out;
    out.reserve(text.size() + text.size() / 8);
    for (size_t at = 0; at < text.size();) each_(next_code(text, at), out);
    return out;
  }

 private:
  Each each_;
};

// A normalizer made of a function from text to text.
template <class Function>
class Whole final : public Normalizer {
 public:
  explicit Whole(Function function) : function_(std::move(function)) {}
  std::string apply(std::string_view text) const override { return function_(text); }

 private:
  Function function_;
};

template <class Each>
std::unique_ptr<const Normalizer> per_code(Each each) {
  return std::make_unique<PerCode<Each>>(std::move(each));
}
template <class Function>
std::unique_ptr<const Normalizer> whole(Function function) {
  return std::make_unique<Whole<Function>>(std::move(function));
}

void append_lower(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code | 0x20 : code);
    return;
  }
  if (code == 0x130) {  // the one letter whose lower case is two characters
    out += "i\xCC\x87";
    return;
  }
  for (size_t i = 0; i < kNumLowerCase; ++i) {
    if (kLowerCase[i].from == code) return append_code(out, kLowerCase[i].to);
  }
  append_code(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

bool is_category(uint32_t code, std::initializer_list<int> categories) {
  const int own = general_category(code);
  for (const int category : categories) {
    if (own == category) return true;
  }
  return false;
}

bool is_mark(uint32_t code) {
  const bool mark =
      is_category(code, {UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME});
  return mark != in_ranges(kMarkChanges, kNumMarkChanges, code);
}

bool is_nonspacing(uint32_t code) {
  return is_category(code, {UTF8PROC_CATEGORY_MN}) !=
         in_ranges(kNonspacingChanges, kNumNonspacingChanges, code);
}

bool is_bert_control(uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const bool control =
      code == 0xFFFD ||
      is_category(code, {UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CO});
  return control != in_ranges(kControlChanges, kNumControlChanges, code);
}

bool is_chinese(uint32_t code) {
  static const CodeRange ranges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                     {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                     {0x2F800, 0x2FA1F}};
  return in_ranges(ranges, std::size(ranges), code);
}

template <class Each>
std::string map_codes(std::string_view text, Each each) {
  return PerCode<Each>(each).apply(text);
}

std::unique_ptr<const Normalizer> make_bert(const JsonFields& fields) {
  const bool clean = fields.flag("clean_text", true), lower = fields.flag("lowercase", true),
             chinese = fields.flag("handle_chinese_chars", true);
  // Accents go with upper case unless the file says otherwise.
  const bool strip = fields.is_null("strip_accents") ? lower : fields.flag("strip_accents", false);
  return whole([=](std::string_view text) {
    std::string now(text);
    if (clean) {
      now = map_codes(now, [](uint32_t code, std::string& out) {
        if (is_bert_control(code)) return;
        append_code(out, char_class(code) & kSpace ? ' ' : code);
      });
    }
    if (chinese) {
      now = map_codes(now, [](uint32_t code, std::string& out) {
        if (is_chinese(code)) out += ' ';
        append_code(out, code);
        if (is_chinese(code)) out += ' ';
      });
    }
    if (strip) {
      now = map_codes(normal_form(NormalForm::nfd, now), [](uint32_t code, std::string& out) {
        if (!is_nonspacing(code)) append_code(out, code);
      });
    }
    return lower ? map_codes(now, append_lower) : now;
  });
}

void nmt(uint32_t code, std::string& out) {
  static const CodeRange dropped[] = {{0x1, 0x8},   {0xB, 0xB},   {0xE, 0x1F},
                                      {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
  static const CodeRange spaces[] = {{0x9, 0xA},       {0xC, 0xD},       {0x1680, 0x1680},
                                     {0x200B, 0x200F}, {0x2028, 0x2029}, {0x2581, 0x2581},
                                     {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
  if (in_ranges(dropped, std::size(dropped), code)) return;
  append_code(out, in_ranges(spaces, std::size(spaces), code) ? ' ' : code);
}

std::string strip(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t after = begin;
    if (!(char_class(next_code(text, after)) & kSpace)) break;
    begin = after;
  }
  while (right && end > begin) {
    const size_t before = previous_code(text, end);
    size_t after = before;
    if (!(char_class(next_code(text, after)) & kSpace)) break;
    end = before;
  }
  return std::string(text.substr(begin, end - begin));
}

void append_byte_level(std::string_view text, std::string& out) {
  for (const char c : text) append_code(out, byte_to_code(static_cast<uint8_t>(c)));
}

std::unique_ptr<const Normalizer> make_sequence(const JsonFields& fields) {
  std::vector<std::unique_ptr<const Normalizer>> parts;
  for (const Json& part : fields.array("normalizers")) {
    if (auto made = make_normalizer(part)) parts.push_back(std::move(made));
  }
  return whole(
      [parts = std::make_shared<decltype(parts)>(std::move(parts))](std::string_view text) {
        std::string now(text);
        for (const auto& part : *parts) now = part->apply(now);
        return now;
      });
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const Json& json) {
  if (json.is_null()) return nullptr;
  const JsonFields fields(json, "normalizer");
  const std::string kind = fields.type();
  for (const auto& [name, form] : {std::pair{"NFC", NormalForm::nfc},
                                   {"NFD", NormalForm::nfd},
                                   {"NFKC", NormalForm::nfkc},
                                   {"NFKD", NormalForm::nfkd}}) {
    if (kind == name) {
      return whole([form = form](std::string_view text) { return normal_form(form, text); });
    }
  }
  if (kind == "Sequence") return make_sequence(fields);
  if (kind == "Lowercase") return per_code(append_lower);
  if (kind == "BertNormalizer") return make_bert(fields);
  if (kind == "Nmt") return per_code(nmt);
  if (kind == "StripAccents") {
    return per_code([](uint32_t code, std::string& out) {
      if (!is_mark(code)) append_code(out, code);
    });
  }
  if (kind == "Strip") {
    return whole([left = fields.flag("strip_left", true), right = fields.flag("strip_right", true)](
                     std::string_view text) { return strip(text, left, right); });
  }
  if (kind == "Prepend") {
    return whole([first = fields.text("prepend")](std::string_view text) {
      return text.empty() ? std::string() : first + std::string(text);
    });
  }
  if (kind == "Replace") {
    return whole([pattern = std::make_shared<TextPattern>(fields.at("pattern")),
                  content = fields.text("content")](std::string_view text) {
      return pattern->replace(text, content);
    });
  }
  if (kind == "ByteLevel") {
    return whole([](std::string_view text) {
      std::string out;
      append_byte_level(text, out);
      return out;
    });
  }
  if (kind == "Precompiled") {
    return whole([map = std::make_shared<CharsMap>(fields.text("precompiled_charsmap"))](
                     std::string_view text) { return map->apply(text); });
  }
  fields.refuse_type();
}

}  // namespace phx
