// A rank and a size, but no peers: for meta tensors. What a rank would send is counted by group and
// kind of collective, which is all that a planner needs to know.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "phalanx/comm/communicator.h"

namespace phx {

struct Traffic {
  int64_t calls = 0;
  int64_t bytes_sent = 0;  // by this rank (comm/sent_bytes.h)
};
using TrafficByGroup = std::map<std::pair<std::string, CommOp>, Traffic>;  // by name of the group

class MetaWorld : public World {
 public:
  MetaWorld(int rank, int size);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override;

  const TrafficByGroup& traffic() const { return *traffic_; }
  void reset_traffic() { traffic_->clear(); }

 protected:
  std::unique_ptr<Communicator> make_group(GroupInfo info) override;

 private:
  int rank_, size_;
  std::shared_ptr<TrafficByGroup> traffic_;
};

}  // namespace phx
