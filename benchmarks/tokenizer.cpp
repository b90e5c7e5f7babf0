// How fast is text turned into tokens, on one core? Prints MB/s with and without the cache of
// words, and how long loading took.
//
//   bench_tokenizer --tokenizer llama/tokenizer.json --text english.txt [--seconds 3]
//   python3 benchmarks/tokenizer_peer.py bench_tokenizer llama/tokenizer.json english.txt
//
// The second line runs this program and Hugging Face's library one after the other.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <ctime>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/text/tokenizer/bpe_model.h"
#include "phalanx/text/tokenizer/hugging_face.h"

namespace phx {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seconds of this thread on a core: what others do on the machine does not count.
double core_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Rate {
  double best = 0, median = 0;  // 10^6 bytes a second of a core
  size_t tokens = 0;
};

// Documents of the size that web pages have, so that calls and vectors are counted in.
Rate measure(const Tokenizer& tokenizer, std::string_view text, double seconds) {
  constexpr size_t kDocument = 8192;
  std::vector<double> rates;
  Rate rate;
  std::vector<int32_t> ids;
  for (const auto begin = Clock::now(); rates.size() < 3 || seconds_since(begin) < seconds;) {
    rate.tokens = 0;
    const double pass = core_seconds();
    for (size_t at = 0; at < text.size(); at += kDocument) {
      ids.clear();
      tokenizer.encode(text.substr(at, kDocument), ids);
      rate.tokens += ids.size();
    }
    rates.push_back(static_cast<double>(text.size()) / (core_seconds() - pass) / 1e6);
  }
  std::sort(rates.begin(), rates.end());
  rate.best = rates.back();
  rate.median = rates[rates.size() / 2];
  return rate;
}

int run(int count, char** arguments) {
  std::string file, text_file;
  double seconds = 3;
  for (int i = 1; i + 1 < count; i += 2) {
    if (std::strcmp(arguments[i], "--tokenizer") == 0) file = arguments[i + 1];
    if (std::strcmp(arguments[i], "--text") == 0) text_file = arguments[i + 1];
    if (std::strcmp(arguments[i], "--seconds") == 0) seconds = std::stod(arguments[i + 1]);
  }
  PHX_CHECK(!file.empty() && !text_file.empty(),
            "usage: bench_tokenizer --tokenizer FILE --text FILE [--seconds S]");
  const std::string text = read_file(text_file);
  const auto begin = Clock::now();
  const auto tokenizer = load_hugging_face(file);
  fmt::print("{}; loaded in {:.2f} s; {} bytes of text\n", tokenizer->description(),
             seconds_since(begin), format_thousands(static_cast<int64_t>(text.size())));
  const auto* bpe = dynamic_cast<const BpeModel*>(&tokenizer->model());
  for (const bool cached : {false, true}) {
    if (bpe != nullptr) bpe->use_word_cache(cached);
    const Rate rate = measure(*tokenizer, text, seconds);
    fmt::print("{:<22} {:8.1f} MB/s median {:8.1f} best  {:.2f} bytes a token\n",
               cached ? "with a word cache" : "without a word cache", rate.median, rate.best,
               static_cast<double>(text.size()) / static_cast<double>(rate.tokens));
  }
  return 0;
}

}  // namespace
}  // namespace phx

int main(int count, char** arguments) {
  try {
    return phx::run(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
