// The bytes of one file of a checkpoint, from where they are: its header, then the boxes' rows one
// after the other. Any range of them can be copied by itself, so several threads can do it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/parameter_boxes.h"

namespace phx {

// When what has been copied is read again, and so whether it should stay in the processor's cache.
enum class ReadNext { soon, later };

class ShardBytes {
 public:
  // `boxes` outlive this.
  ShardBytes(std::string header, std::span<const LocalBox> boxes);

  int64_t size() const { return size_; }
  // Bytes from `begin` on. From a device on its lane of copies (StreamName::d2h): they are there
  // when that is.
  void copy(int64_t begin, std::span<std::byte> out, ReadNext next) const;

 private:
  std::string header_;
  std::span<const LocalBox> boxes_;
  std::vector<int64_t> starts_;  // of the boxes, in the file
  int64_t size_ = 0;
};

}  // namespace phx
