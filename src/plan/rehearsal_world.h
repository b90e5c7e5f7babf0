// One rank of many that computes, without the others: what would come from them is this rank's own
// data, and every transfer takes the time of a wire. It measures what a layout costs a rank on the
// device at hand; the numbers that it trains are of no use.
#pragma once

#include <memory>

#include "phalanx/comm/communicator.h"

namespace phx {

struct Wire {
  double bytes_per_second = 0;  // that a rank sends; 0: no time
  double seconds_per_call = 0;
};

// Transfers of all groups share the wire: one begins when the one before has ended.
class RehearsalWorld : public World {
 public:
  RehearsalWorld(int rank, int size, const Wire& wire);
  ~RehearsalWorld() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_rank() const override { return 0; }
  std::string description() const override;

 protected:
  std::unique_ptr<Communicator> make_group(GroupInfo info) override;

 private:
  struct Line;
  int rank_, size_;
  std::shared_ptr<Line> line_;
  friend class RehearsalCommunicator;
};

}  // namespace phx
