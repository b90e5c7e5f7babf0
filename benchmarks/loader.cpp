// How many tokens a second does one core make samples of, from a mapped pair? In order of a
// shuffled index, with and without masks.
//   loader [million tokens] [seq_length]
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "phalanx/data/gpt/datasets.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "phalanx/data/split_mix.h"

using namespace phx;

namespace {

// Of this thread on its core: others on the machine do not count.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens = (argc > 1 ? std::atoll(argv[1]) : 200) * 1000000;
  const int64_t seq_length = argc > 2 ? std::atoll(argv[2]) : 4096;
  const Path folder = std::filesystem::temp_directory_path() / "phalanx_loader";
  std::filesystem::create_directories(folder);
  {
    IndexedWriter writer(folder / "pair", TokenCode::u16);
    SplitMix random(1);
    std::vector<int32_t> document;
    while (writer.num_tokens() < tokens) {
      document.resize(1 + random.below(1200));
      for (int32_t& token : document) token = int32_t(random.below(50000));
      document.back() = 50000;
      writer.add_sequence(document);
      writer.end_document();
    }
    writer.commit();
  }
  DataConfig config;
  config.data_path = {(folder / "pair").string()};
  config.split = "1";
  for (const bool masked : {false, true}) {
    DatasetRequest request;
    request.sample = {.seq_length = seq_length,
                      .eod = 50000,
                      .mask_eod_loss = masked,
                      .reset_positions = masked,
                      .reset_attention = masked};
    const auto source = make_dataset(config, request, Split::train);
    Sample sample;
    int64_t made = 0, sum = 0;
    for (const bool counted : {false, true}) {  // once to bring the file into memory
      const double start = thread_seconds();
      made = 0;
      for (int64_t i = 0; i < *source->num_samples(); ++i) {
        source->sample(i, sample);
        made += seq_length;
        sum += sample.labels.back();
      }
      const double seconds = thread_seconds() - start;
      if (counted)
        std::printf("%s: %.0f M tokens/s on one core (%lld)\n",
                    masked ? "with masks, positions, lengths" : "tokens and labels",
                    double(made) / seconds / 1e6, static_cast<long long>(sum));
    }
  }
  std::filesystem::remove_all(folder);
}
