#include "phalanx/comm/socket_world.h"

#include <algorithm>

#include "phalanx/comm/machine_limits.h"
#include "phalanx/comm/process_ledgers.h"
#include "phalanx/comm/rendezvous.h"
#include "phalanx/comm/socket_mesh.h"
#include "phalanx/comm/transport_communicator.h"

namespace phx {

namespace {

class SocketTransport : public ByteTransport {
 public:
  SocketTransport(std::shared_ptr<SocketMesh> mesh, const GroupInfo& info)
      : ByteTransport(info.rank, int(info.members.size())),
        mesh_(std::move(mesh)),
        members_(info.members),
        collectives_{info.id, Channel::collective},
        messages_{info.id, Channel::message},
        sent_(info.members.size()),
        received_(info.members.size()) {}

  void all_to_all(std::span<const ByteView> to, std::span<const ByteRoom> from) override {
    std::vector<SocketMesh::Part> parts;
    for (int i = 1; i < size(); ++i) {
      const int r = (rank() + i) % size();  // everybody starts elsewhere
      parts.push_back({members_[r], to[r], from[r]});
    }
    with_group_ranks([&] { mesh_->exchange(collectives_, ++round_, parts); });
  }
  void send(ByteView bytes, int peer) override {
    mesh_->send(messages_, ++sent_[peer], members_[peer], bytes);
  }
  void receive(ByteRoom room, int peer) override {
    with_group_ranks([&] { mesh_->receive(messages_, ++received_[peer], members_[peer], room); });
  }
  void fail(const std::string& why) override { mesh_->fail(why); }

 private:
  // The mesh knows world ranks only.
  template <class Call>
  void with_group_ranks(Call&& call) {
    try {
      call();
    } catch (SizeMismatch& mismatch) {
      const auto at = std::find(members_.begin(), members_.end(), mismatch.peer);
      mismatch.peer = int(at - members_.begin());
      throw;
    }
  }

  std::shared_ptr<SocketMesh> mesh_;
  std::vector<int> members_;
  Channel collectives_, messages_;
  uint64_t round_ = 0;
  std::vector<uint64_t> sent_, received_;
};

class SocketWorld : public World {
 public:
  SocketWorld(const LaunchEnvironment& environment, const WorldOptions& options)
      : environment_(environment), ledgers_(std::make_shared<ProcessLedgers>(environment)) {
    make_room_for_files(environment.size);
    TcpStore store(store_options(environment, options.timeout));
    compare_settings(store, environment.rank, environment.size, options.settings);
    mesh_ = std::make_shared<SocketMesh>(environment, store, options.timeout,
                                         [ledgers = ledgers_] { ledgers->note_first_failure(); });
  }
  ~SocketWorld() override {
    if (mesh_->failed()) ledgers_->keep();
  }

  int rank() const override { return environment_.rank; }
  int size() const override { return environment_.size; }
  int local_rank() const override { return environment_.local_rank; }
  std::string description() const override {
    return str_cat(size(), " ranks as processes over TCP, started by ", environment_.launcher);
  }
  void fail(const std::string& why) override { mesh_->fail(why); }
  void check() override { mesh_->check(); }

 protected:
  std::shared_ptr<RankLedgers> ledgers() override { return ledgers_; }
  std::unique_ptr<Communicator> make_group(GroupInfo info) override {
    auto transport = std::make_unique<SocketTransport>(mesh_, info);
    return std::make_unique<TransportCommunicator>(std::move(info), std::move(transport));
  }

 private:
  LaunchEnvironment environment_;
  std::shared_ptr<ProcessLedgers> ledgers_;
  std::shared_ptr<SocketMesh> mesh_;
};

}  // namespace

std::unique_ptr<World> make_socket_world(const LaunchEnvironment& environment,
                                         const WorldOptions& options) {
  return std::make_unique<SocketWorld>(environment, options);
}

}  // namespace phx
