// How fast is text turned into token files? Tokens are bytes, so that what is measured is reading,
// JSON and writing; with a tokenizer.json it is the whole way.
//   preprocess [FILE.jsonl [workers [tokenizer.json]]]
// Without a file it makes one of 512 MB.
#include "phalanx/data/preprocess/preprocess.h"

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "phalanx/base/file.h"
#include "phalanx/data/data_config.h"
#include "phalanx/data/story_corpus.h"

using namespace phx;

namespace {

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void write_stories(const Path& path, int64_t bytes) {
  AtomicFile file(path);
  StoryWriter writer(1);
  while (file.size() < bytes) {
    std::string block;
    for (int i = 0; i < 1000; ++i) {
      block += "{\"id\": 17, \"text\": \"";
      for (int part = 0; part < 8; ++part) block += writer.next() + (part == 3 ? "\\n\\n" : " ");
      block += "\", \"meta\": {\"source\": \"stories\"}}\n";
    }
    file.write(block);
  }
  file.commit();
}

}  // namespace

int main(int argc, char** argv) {
  const Path folder = std::filesystem::temp_directory_path() / "phalanx_preprocess";
  std::filesystem::create_directories(folder);
  const Path input = argc > 1 ? Path(argv[1]) : folder / "stories.jsonl";
  if (argc <= 1 && !std::filesystem::exists(input)) write_stories(input, int64_t{512} << 20);
  PreprocessOptions options;
  options.inputs = {input};
  options.output_prefix = folder / "out";
  options.append_eod = argc <= 3;  // a tokenizer.json alone does not say which token it is
  options.workers = argc > 2 ? std::atoi(argv[2]) : 1;
  DataConfig data;
  data.tokenizer_type = argc > 3 ? "HuggingFaceTokenizer" : "ByteTokenizer";
  if (argc > 3) data.tokenizer_model = argv[3];
  const auto tokenizer = make_tokenizer(data);
  const double before = cpu_seconds();
  const PreprocessReport report = preprocess(options, *tokenizer);
  const double megabytes = double(report.progress.bytes_text) / 1e6, cpu = cpu_seconds() - before;
  std::printf(
      "%.0f MB, %d workers: %.1f MB/s, %.1f MB/s a core (%.2f s of CPU time), %lld tokens\n",
      megabytes, options.workers, megabytes / report.progress.seconds, megabytes / cpu, cpu,
      static_cast<long long>(report.outputs[0].tokens));
  std::filesystem::remove(folder / "out_text_document.bin");
  std::filesystem::remove(folder / "out_text_document.idx");
}
