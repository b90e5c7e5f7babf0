// From text to pairs of token files: blocks of lines go to worker threads, and their tokens to the
// files in the order of the lines, so that the files are the same whatever the number of workers.
// Memory does not grow with the input.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/data/preprocess/text_input.h"
#include "phalanx/text/tokenizer.h"

namespace phx {

struct PreprocessOptions {
  std::vector<TextInput> inputs;
  std::vector<std::string> json_keys = {"text"};
  Path output_prefix;  // PREFIX_KEY_document.bin and .idx are written for every key
  bool append_eod = false;
  bool with_special = true;  // what the tokenizer puts around a text, as Megatron does
  int workers = 1;
  // Megatron's --partitions: lines go to so many parts in turn, which then stand one after the
  // other. With one, documents keep the order of the lines.
  int partitions = 1;
  bool skip_broken = false;  // else a broken line is an error that names file and line
};

struct PreprocessProgress {
  // Of the files as they lie on the disk; no total if one of them is a pipe.
  int64_t bytes_done = 0, bytes_total = 0;
  int64_t bytes_text = 0;  // decompressed
  int64_t lines = 0;
  double seconds = 0;
};
// "37% | 62.1 MB/s | 12.3 k documents/s | 3 min 05 s left"
std::string progress_line(const PreprocessProgress& progress);

struct PreprocessReport {
  struct Output {
    Path prefix;
    int64_t documents = 0, tokens = 0;
  };
  std::vector<Output> outputs;  // one a key
  PreprocessProgress progress;  // at the end
  int64_t skipped = 0;          // broken lines
  std::string first_skipped;    // what was wrong with the first of them
};

PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer,
                            const std::function<void(const PreprocessProgress&)>& watch = {});

}  // namespace phx
