// TensorBoard event files, written by hand: a TFRecord stream of Event messages, of which only the
// four fields of a scalar are needed. Tags are Megatron's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "phalanx/base/file.h"
#include "phalanx/report/iteration_report.h"

namespace phx {

// CRC-32C (Castagnoli), and as TFRecords store it: rotated and shifted, so that a checksum of data
// that holds checksums is still a good one.
uint32_t crc32c(std::span<const std::byte> bytes);
uint32_t masked_crc32c(std::span<const std::byte> bytes);

class TensorBoardWriter {
 public:
  // Seconds since 1970.
  using Clock = std::function<double()>;

  // A new file `events.out.tfevents.<time>.<host>.<process>.<number>` in `folder`, which is made if
  // need be.
  explicit TensorBoardWriter(const Path& folder);
  TensorBoardWriter(const Path& folder, Clock clock);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;
  ~TensorBoardWriter();  // flushes; an error at this point is logged

  void scalar(std::string_view tag, double value, int64_t step);

  // Megatron's tags; each of the first kind also as "<tag> vs samples". Flushes.
  void write(const IterationReport& report);
  void write(const ValidationReport& report);

  void flush();
  bool in_place() const { return file_.in_place(); }
  const Path& path() const { return file_.path(); }

 private:
  void both(const std::string& tag, double value, int64_t iteration, int64_t samples);
  void record(std::string_view event);

  Clock clock_;
  AppendFile file_;
  std::string buffer_;
};

}  // namespace phx
