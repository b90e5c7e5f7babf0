// How long does the index of a large dataset take to build, to keep and to open again, and how much
// memory? Lengths are made up: no token file is needed for the index itself.
//   dataset_index [million documents] [threads] [mean tokens] [seq_length] [folder]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "phalanx/data/gpt/index_cache.h"
#include "phalanx/data/split_mix.h"

using namespace phx;

namespace {

template <class F>
double seconds_of(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double peak_gigabytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return double(usage.ru_maxrss) * 1024 / 1e9;
}

int64_t number(int argc, char** argv, int at, int64_t otherwise) {
  return argc > at ? std::atoll(argv[at]) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t documents = number(argc, argv, 1, 100) * 1000000;
  const auto threads = int(number(argc, argv, 2, 2));
  const auto mean = uint32_t(number(argc, argv, 3, 600));
  const int64_t seq_length = number(argc, argv, 4, 4096);
  const std::filesystem::path folder =
      argc > 5 ? argv[5] : std::filesystem::temp_directory_path() / "phalanx_dataset_index";

  std::vector<int32_t> lengths(static_cast<size_t>(documents));
  SplitMix random(1);
  for (int32_t& length : lengths) length = 1 + int32_t(random.below(2 * mean));
  const LengthsView view{reinterpret_cast<const std::byte*>(lengths.data()), documents};
  const GptIndexRequest request{.documents = {0, documents}, .seq_length = seq_length};
  std::printf(
      "%lld documents of %u tokens on average, samples of %lld, %d threads; lengths take "
      "%.2f GB\n",
      static_cast<long long>(documents), mean, static_cast<long long>(seq_length), threads,
      peak_gigabytes());

  const IndexCache cache(folder);
  const std::string key = "benchmark";
  {
    std::optional<GptIndex> index;
    const double build = seconds_of([&] { index = GptIndex::build(view, request, threads); });
    std::printf("build   %8.3f s, %lld samples, peak memory %.2f GB with the lengths\n", build,
                static_cast<long long>(index->num_samples()), peak_gigabytes());
    const double keep = seconds_of([&] { cache.save(key, *index); });
    std::printf("keep    %8.3f s, %.2f GB on the disk\n", keep,
                double(std::filesystem::file_size(cache.file_of(key))) / 1e9);
  }
  std::optional<GptIndex> opened;
  int64_t sum = 0;
  const double open = seconds_of([&] {
    opened = cache.open<GptIndex>(key);
    for (int64_t i = 0; i < 1000; ++i) sum += opened->shuffled(i);
  });
  std::printf("open    %8.3f s (and a thousand samples looked up: %lld)\n", open,
              static_cast<long long>(sum));
  opened.reset();
  std::filesystem::remove(cache.file_of(key));
}
