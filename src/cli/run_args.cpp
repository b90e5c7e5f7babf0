#include "cli/run_args.h"

#include <algorithm>

namespace phx {

SplitArgs split_args(const OptionSet& own, std::span<const std::string> args) {
  SplitArgs split;
  for (size_t i = 0; i < args.size(); ++i) {
    split.help |= args[i] == "--help" || args[i] == "-h";
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    const Option* option = name.starts_with("--") ? own.find(name.substr(2)) : nullptr;
    (option != nullptr ? split.own : split.pretrain).push_back(args[i]);
    const bool takes_next = option != nullptr && option->kind == Option::Kind::single &&
                            equals == std::string::npos && i + 1 < args.size();
    if (takes_next) split.own.push_back(args[++i]);
  }
  return split;
}

ParseResult parse_run(std::vector<std::string> args, std::optional<int64_t> world) {
  const std::vector<std::vector<std::string>> left_out = {
      {"--lr", "1e-4"}, {"--train-iters", "1"}, {"--data-path", ""}};
  const ParseResult first = parse_pretrain(args, world);
  for (const auto& flag : left_out) {
    const bool missing = std::ranges::any_of(first.report.problems, [&](const Problem& problem) {
      return problem.flag == flag[0] && problem.text.find("is required") != std::string::npos;
    });
    if (!missing) continue;
    if (flag[1].empty())
      args.push_back("--mock-data");
    else
      args.insert(args.end(), flag.begin(), flag.end());
  }
  return parse_pretrain(args, world);
}

}  // namespace phx
