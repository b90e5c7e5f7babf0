#include "phalanx/report/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

#include "support/temp_folder.h"

namespace phx {
namespace {

struct Event {
  double wall_time = 0.;
  int64_t step = 0;
  std::string version, tag;
  float value = 0.f;
};

// A reader of its own, that knows the formats and not the writer.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  std::string_view take(size_t n) {
    if (n > rest_.size()) throw std::runtime_error("the message ends early");
    const std::string_view bytes = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return bytes;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const uint8_t byte = number<uint8_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view bytes() { return take(varint()); }

 private:
  std::string_view rest_;
};

void parse(std::string_view message, int level, Event& event) {
  for (Reader reader(message); !reader.at_end();) {
    const uint64_t key = 100 * level + reader.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = reader.number<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(reader.varint());
    } else if (key == (3 << 3 | 2)) {
      event.version = reader.bytes();
    } else if (key == (5 << 3 | 2)) {
      parse(reader.bytes(), 1, event);
    } else if (key == 100 + (1 << 3 | 2)) {
      parse(reader.bytes(), 2, event);
    } else if (key == 200 + (1 << 3 | 2)) {
      event.tag = reader.bytes();
    } else if (key == 200 + (2 << 3 | 5)) {
      event.value = reader.number<float>();
    } else {
      throw std::runtime_error("unknown key " + std::to_string(key));
    }
  }
}

std::vector<Event> read_events(const Path& path) {
  const std::string content = read_file(path);
  std::vector<Event> events;
  for (Reader reader(content); !reader.at_end();) {
    const std::string_view length = reader.take(8);
    EXPECT_EQ(reader.number<uint32_t>(), masked_crc32c(as_bytes(length)));
    uint64_t size;
    std::memcpy(&size, length.data(), 8);
    const std::string_view message = reader.take(size);
    EXPECT_EQ(reader.number<uint32_t>(), masked_crc32c(as_bytes(message)));
    parse(message, 0, events.emplace_back());
  }
  return events;
}

TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  // RFC 3720, B.4
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62a8ab43u);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(crc32c(as_bytes(up)), 0x46dd794eu);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(masked_crc32c({}), 0xa282ead8u);
}

TEST(TensorBoard, ScalarsAreReadBack) {
  const TempFolder folder;
  double now = 1.5e9;
  TensorBoardWriter writer(folder / "logs", [&] { return now; });
  now += 0.25;
  writer.scalar("lm loss", 2.5, 7);
  writer.scalar("x", -1e-3, int64_t{1} << 40);
  writer.flush();
  EXPECT_EQ(writer.path().filename().string().substr(0, 31), "events.out.tfevents.1500000000.");
  const std::vector<Event> events = read_events(writer.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1.5e9);
  EXPECT_EQ(events[1].tag, "lm loss");
  EXPECT_EQ(events[1].value, 2.5f);
  EXPECT_EQ(events[1].step, 7);
  EXPECT_EQ(events[1].wall_time, 1.5e9 + 0.25);
  EXPECT_EQ(events[2].value, -1e-3f);
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
}

TEST(TensorBoard, TwoWritersOfAFolderHaveFilesOfTheirOwn) {
  const TempFolder folder;
  TensorBoardWriter a(folder.path(), [] { return 1.; }), b(folder.path(), [] { return 1.; });
  EXPECT_NE(a.path(), b.path());
}

// Losses of all layers have Megatron's tags; those of a layer, and the rest, are ours.
TEST(TensorBoard, RoutersHaveTagsTogetherAndLayerByLayer) {
  const TempFolder folder;
  TensorBoardWriter writer(folder.path());
  RouterReport routers{.most = 1.5,
                       .fewest = 0.5,
                       .entropy = 0.25,
                       .dropped = 0.125,
                       .losses = {{"load_balancing_loss", 1.25}}};
  IterationReport report{.iteration = 10, .routers = routers};
  routers.loads = {0.75, 1.25};
  report.router_layers = {{2, routers}};
  writer.write(report);
  std::map<std::string, float> seen;
  for (const Event& event : read_events(writer.path()))
    if (event.tag.starts_with("moe/") || event.tag.starts_with("load_"))
      seen[event.tag] = event.value;
  const std::map<std::string, float> expected = {{"load_balancing_loss", 1.25f},
                                                 {"moe/expert_load_max", 1.5f},
                                                 {"moe/expert_load_min", 0.5f},
                                                 {"moe/router_entropy", 0.25f},
                                                 {"moe/dropped_share", 0.125f},
                                                 {"moe/load_balancing_loss_layer_2", 1.25f},
                                                 {"moe/expert_load_max_layer_2", 1.5f},
                                                 {"moe/expert_load_min_layer_2", 0.5f},
                                                 {"moe/router_entropy_layer_2", 0.25f},
                                                 {"moe/dropped_share_layer_2", 0.125f},
                                                 {"moe/expert_load_layer_2_expert_0", 0.75f},
                                                 {"moe/expert_load_layer_2_expert_1", 1.25f}};
  EXPECT_EQ(seen, expected);
}

TEST(TensorBoard, AReportHasMegatronsTags) {
  const TempFolder folder;
  TensorBoardWriter writer(folder.path());
  writer.write(IterationReport{.iteration = 10,
                               .consumed_samples = 320,
                               .milliseconds = 250.,
                               .tflops_per_gpu = 400.,
                               .learning_rate = 1e-3,
                               .decoupled_learning_rate = 5e-3,
                               .global_batch_size = 32,
                               .losses = {{"lm loss", 3.}, {"z_loss", 0.5}},
                               .grad_norm = 1.25,
                               .world_size = 8});
  writer.write(
      ValidationReport{.iteration = 10, .consumed_samples = 320, .losses = {{"lm loss", 0.}}});
  std::map<std::string, std::pair<float, int64_t>> seen;
  for (const Event& event : read_events(writer.path())) {
    if (!event.tag.empty()) seen[event.tag] = {event.value, event.step};
  }
  const std::map<std::string, std::pair<float, int64_t>> expected = {
      {"learning-rate", {1e-3f, 10}},
      {"learning-rate vs samples", {1e-3f, 320}},
      {"decoupled-learning-rate", {5e-3f, 10}},
      {"batch-size", {32.f, 10}},
      {"batch-size vs samples", {32.f, 320}},
      {"lm loss", {3.f, 10}},
      {"lm loss vs samples", {3.f, 320}},
      {"z_loss", {0.5f, 10}},
      {"z_loss vs samples", {0.5f, 320}},
      {"loss-scale", {1.f, 10}},
      {"loss-scale vs samples", {1.f, 320}},
      {"world-size", {8.f, 10}},
      {"world-size vs samples", {8.f, 320}},
      {"grad-norm", {1.25f, 10}},
      {"grad-norm vs samples", {1.25f, 320}},
      {"iteration-time", {0.25f, 10}},
      {"throughput", {400.f, 10}},
      {"lm loss validation", {0.f, 10}},
      {"lm loss validation vs samples", {0.f, 320}},
      {"lm loss validation ppl", {1.f, 10}},
      {"lm loss validation ppl vs samples", {1.f, 320}}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace phx
