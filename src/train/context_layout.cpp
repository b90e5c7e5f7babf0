#include "phalanx/train/context_layout.h"

#include <algorithm>
#include <numeric>

#include "phalanx/base/error.h"

namespace phx {

namespace {

bool has_comm(const ParallelConfig& ranks, const char* name) {
  return std::ranges::find(ranks.cp_comm_type, name) != ranks.cp_comm_type.end();
}

// Whether keys of some layer travel from rank to rank.
bool has_ring(const ParallelConfig& ranks) {
  if (ranks.context_parallel_size == 1) return false;
  const std::vector<int64_t>& sizes = ranks.hierarchical_context_parallel_sizes;
  const bool groups = sizes.size() < 2 || sizes[1] > 1;  // of ranks that exchange heads
  return has_comm(ranks, "p2p") || has_comm(ranks, "all_gather") ||
         (has_comm(ranks, "a2a+p2p") && groups);
}

// "1, 2, 4": the divisors of `total`.
std::string divisors(int64_t total) {
  std::string list;
  for (int64_t i = 1; i <= total; ++i)
    if (total % i == 0) list += str_cat(list.empty() ? "" : ", ", i);
  return list;
}

class Checker {
 public:
  Checker(const TransformerConfig& model, const ParallelConfig& ranks, const KnownFlag& known)
      : model_(model), ranks_(ranks), known_(known) {}

  Problems run() {
    if (cp() == 1) return {};
    if (know({"seq-length", "sequence-parallel"})) check_length();
    if (!know({"cp-comm-type", "hierarchical-context-parallel-sizes"})) return problems_;
    if (know({"num-layers", "mtp-num-layers"})) check_types();
    if (!check_sizes()) return problems_;
    if (know({"num-attention-heads", "num-query-groups", "cp-comm-type"})) check_heads();
    return problems_;
  }

 private:
  bool know(std::initializer_list<const char*> flags) const {
    return !known_ || std::ranges::all_of(flags, known_);
  }
  void add(const char* flag, std::string text, std::string hint) {
    problems_.push_back({ProblemKind::rule, flag, std::move(text), std::move(hint)});
  }

  // Two chunks for every rank, which tensor-parallel ranks may cut once more.
  void check_length() {
    const bool cut_again = ranks_.sequence_parallel && tp() > 1;
    const int64_t unit = cp() * (cut_again ? std::lcm<int64_t>(2, tp()) : 2);
    if (model_.seq_length % unit == 0) return;
    add("--seq-length",
        str_cat("--seq-length ", model_.seq_length, " is not a multiple of ", unit,
                ": --context-parallel-size ", cp(), " cuts a sequence into ", 2 * cp(), " chunks",
                cut_again ? str_cat(", and --sequence-parallel a rank's two chunks over TP ", tp())
                          : std::string()),
        nearest_multiples(model_.seq_length, unit));
  }

  void check_types() {
    const auto given = int64_t(ranks_.cp_comm_type.size());
    if (given == 1 || given == model_.num_layers) return;
    add("--cp-comm-type",
        str_cat("--cp-comm-type has ", given, " values, but there are ", model_.num_layers,
                " layers"),
        str_cat("give one for all layers, or ", model_.num_layers));
  }

  // Whether it is known which ranks exchange heads.
  bool check_sizes() {
    const std::vector<int64_t>& sizes = ranks_.hierarchical_context_parallel_sizes;
    const char* flag = "--hierarchical-context-parallel-sizes";
    const std::string hint = str_cat("two numbers whose product is ", cp(), ", e.g. ", flag, " ",
                                     cp() % 2 == 0 ? 2 : cp(), " ", cp() % 2 == 0 ? cp() / 2 : 1);
    if (sizes.empty()) {
      if (!has_comm(ranks_, "a2a+p2p")) return true;
      add(flag,
          str_cat("--cp-comm-type a2a+p2p needs ", flag,
                  ": how many neighbours exchange heads, and over how many of those keys go round"),
          hint);
      return false;
    }
    if (sizes.size() == 2 && sizes[0] * sizes[1] == cp()) return true;
    std::string given;
    for (const int64_t size : sizes) given += str_cat(given.empty() ? "" : " ", size);
    add(flag, str_cat(flag, " ", given, " does not make --context-parallel-size ", cp()), hint);
    return false;
  }

  void check_heads() {
    const int64_t ranks = ranks_that_exchange_heads(ranks_);
    if (ranks == 1) return;
    // Query groups of fewer than TP are whole on a rank, one each.
    const int64_t heads = std::max<int64_t>(model_.num_attention_heads / tp(), 1);
    const int64_t groups =
        model_.latent.any() ? heads : std::max<int64_t>(model_.query_groups() / tp(), 1);
    const int64_t both = std::gcd(heads, groups);
    if (both % ranks == 0) return;
    const bool all = has_comm(ranks_, "a2a");  // else neighbours do
    add("--cp-comm-type",
        str_cat("--cp-comm-type ", all ? "a2a" : "a2a+p2p", " exchanges heads among ", ranks,
                " ranks, but a rank has ", heads, " query heads and ", groups,
                " key heads, and each of these should be a multiple of ", ranks),
        str_cat("ranks that do: ", divisors(both),
                all ? "; or --cp-comm-type p2p"
                    : " (the first of --hierarchical-context-parallel-sizes)"));
  }

  int64_t cp() const { return ranks_.context_parallel_size; }
  int64_t tp() const { return ranks_.tensor_model_parallel_size; }

  const TransformerConfig& model_;
  const ParallelConfig& ranks_;
  const KnownFlag& known_;
  Problems problems_;
};

}  // namespace

int64_t ranks_that_exchange_heads(const ParallelConfig& ranks) {
  if (has_comm(ranks, "a2a")) return ranks.context_parallel_size;
  return neighbours_that_exchange_heads(ranks);
}

int64_t neighbours_that_exchange_heads(const ParallelConfig& ranks) {
  const std::vector<int64_t>& sizes = ranks.hierarchical_context_parallel_sizes;
  const bool some = ranks.context_parallel_size > 1 && has_comm(ranks, "a2a+p2p");
  return some && !sizes.empty() ? sizes[0] : 1;
}

Problem needs_whole_sequences(const ParallelConfig& ranks) {
  return {ProblemKind::rule, "--context-parallel-size",
          str_cat("--context-parallel-size ", ranks.context_parallel_size,
                  ": this model, or a part of its layers, needs whole sequences"),
          "override takes_context_parallel() to return true if every token is computed alone; or "
          "use --context-parallel-size 1"};
}

Problems context_device_problems(const TransformerConfig& model, const ParallelConfig& ranks,
                                 bool packed) {
  if (!has_ring(ranks)) return {};
  Problems problems;
  const auto add = [&](const char* flag, const std::string& what) {
    problems.push_back({ProblemKind::refused, flag,
                        str_cat(what, " with --context-parallel-size ", ranks.context_parallel_size,
                                " and keys that travel is not in this build yet on GPUs"),
                        "use --cp-comm-type a2a, or --device cpu"});
  };
  if (packed) add("--cp-comm-type", "a row of several sequences");
  if (model.attention_dropout > 0) add("--attention-dropout", "--attention-dropout");
  return problems;
}

Problems context_layout_problems(const TransformerConfig& model, const ParallelConfig& ranks,
                                 const KnownFlag& known) {
  return Checker(model, ranks, known).run();
}

}  // namespace phx
