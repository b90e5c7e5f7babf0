// What a run's samples follow from, as a checkpoint records it: a run that goes on with other data
// goes on, but says so.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/train/session.h"

namespace phx {

// JSON of the options of the data, the sizes of its files, the tokenizer's checksums, the length of
// a sample, the seed that orders them, and a checksum of the first samples of `train`, if given.
// Opens nothing but the tokenizer's files.
std::string data_fingerprint(const RunConfig& config, const SampleSource* train = nullptr);

// The files behind it, for ranks to compare: "data file 1" -> "a.bin, 10000 bytes, xxh3:..". Of a
// large file the checksum is of both ends and of pages between. No error for a missing file.
std::map<std::string, std::string> data_contents(const RunConfig& config);

// A line for everything that differs, with both values; none for an option that only one knows.
std::vector<std::string> fingerprint_differences(const std::string& before, const std::string& now);

}  // namespace phx
