#include "phalanx/base/json_lines.h"

#include <string>
#include <string_view>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"

namespace phx {

void read_json_lines(const Path& path,
                     const std::function<void(const nlohmann::json&, int64_t line)>& each) {
  const std::string content = read_file(path);
  std::string_view rest = content;
  int64_t line = 0;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    ++line;
    const std::string_view text = rest.substr(0, end);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto value = try_parse_json(text);
    PHX_CHECK(value.is_object(), path.native(), ":", line,
              ": a line should be one JSON object, but it is: ", text.substr(0, 60),
              text.size() > 60 ? "..." : "");
    each(value, line);
  }
}

}  // namespace phx
