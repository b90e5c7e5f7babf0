#include "phalanx/parallel/pipeline/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <ranges>

#include "phalanx/comm/meta_world.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/core/segment.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/activation.h"
#include "phalanx/ops/add.h"
#include "phalanx/parallel/pipeline/check.h"
#include "phalanx/parallel/pipeline/placement.h"
#include "phalanx/parallel/tensor/layers.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int kRows = 3, kWidth = 5;  // of the messages: [kRows, kWidth]

// x + silu(x W^T + b)
class ToyLayer : public Module {
 public:
  ToyLayer() : linear_(kWidth, cut_rows({kWidth}, {}), {.init = Init::normal(0.5)}, {}) {
    add_child("linear", linear_);
  }
  Tensor forward(const Tensor& x) { return add(x, activate(linear_.forward(x), Activation::silu)); }

 private:
  ColumnLinear linear_;
};

// The layers of a rank, under their global names.
class ToyModel : public Module {
 public:
  explicit ToyModel(const std::vector<ChunkPlacement>& chunks) {
    for (const ChunkPlacement& chunk : chunks)
      for (const int layer : chunk.layers()) {
        layers_[layer] = std::make_unique<ToyLayer>();
        add_child("layers." + std::to_string(layer), *layers_[layer]);
      }
  }
  Tensor forward(const ChunkPlacement& chunk, Tensor x) {
    for (const int layer : chunk.layers()) x = layers_.at(layer)->forward(x);
    return x;
  }

 private:
  std::map<int, std::unique_ptr<ToyLayer>> layers_;
};

// Micro-batch m begins as fixed random numbers, and the gradient of its "loss" are others.
Tensor numbers(int micro_batch, uint64_t what, Device device) {
  if (device.kind() == DeviceKind::meta) return empty({kRows, kWidth}, DType::f64, device);
  return randn({kRows, kWidth}, Seed{100 * what + micro_batch}, DType::f64, device);
}

class ToyStage : public Stage {
 public:
  ToyStage(Runtime& runtime, const std::vector<ChunkPlacement>& chunks)
      : runtime_(runtime),
        chunks_(chunks),
        model_(chunks),
        store_(model_, runtime.device(), {.dtype = DType::f64, .seed = 3}) {
    store_.begin_step();
  }

  Runtime& runtime() override { return runtime_; }
  MessageSpec input(int, int c) const override {
    return chunks_[c].has_embedding ? MessageSpec{} : message();
  }
  MessageSpec output(int, int c) const override {
    return chunks_[c].has_loss ? MessageSpec{} : message();
  }

  StageMessage forward(int m, int c, const StageMessage& input) override {
    const ChunkPlacement& chunk = chunks_[c];
    EXPECT_EQ(input.empty(), chunk.has_embedding);
    const Tensor x = input.empty() ? numbers(m, 1, runtime_.device()) : input.at("x");
    auto& segment = segments_[{m, c}] =
        std::make_unique<Segment>(std::span(&x, 1), [&](std::span<const Tensor> in) {
          return std::vector<Tensor>{model_.forward(chunk, in[0])};
        });
    peak_alive = std::max<size_t>(peak_alive, segments_.size() + deferred_.size());
    if (!chunk.has_loss) return {{"x", segment->outputs()[0]}};
    outputs[m] = segment->outputs()[0];
    return {};
  }

  StageMessage backward(int m, int c, const StageMessage& doutput, bool defer_weights) override {
    const ChunkPlacement& chunk = chunks_[c];
    EXPECT_EQ(doutput.empty(), chunk.has_loss);
    const Tensor dy = doutput.empty() ? numbers(m, 2, runtime_.device()) : doutput.at("x");
    DeferredWork work;
    const BackwardOptions options{.defer = defer_weights ? &work : nullptr};
    const auto segment = std::move(segments_.extract({m, c}).mapped());
    const Tensor dx = segment->backward(std::span(&dy, 1), options)[0];
    if (defer_weights) deferred_[{m, c}] = std::move(work);
    if (!chunk.has_embedding) return {{"x", dx}};
    dinputs[m] = dx;
    return {};
  }

  void weight_backward(int m, int c) override {
    for (auto& work : deferred_.at({m, c})) work();
    deferred_.erase({m, c});
  }

  std::map<std::string, std::vector<double>> gradients() const {
    std::map<std::string, std::vector<double>> result;
    for (Parameter* parameter : store_.parameters())
      result[parameter->name()] = to_values(parameter->gradient());
    return result;
  }
  void begin_step() { store_.begin_step(); }

  virtual MessageSpec message() const { return {{"x", {kRows, kWidth}, DType::f64}}; }

  std::map<int, Tensor> outputs, dinputs;  // by micro-batch, at the model's end and begin
  size_t peak_alive = 0;

 private:
  Runtime& runtime_;
  std::vector<ChunkPlacement> chunks_;
  ToyModel model_;
  ParameterStore store_;
  std::map<std::pair<int, int>, std::unique_ptr<Segment>> segments_;
  std::map<std::pair<int, int>, DeferredWork> deferred_;
};

struct Results {
  std::map<std::string, std::vector<double>> gradients;
  std::map<int, std::vector<double>> outputs, dinputs;
  std::vector<LogicalClock> clocks;  // per rank
  std::vector<size_t> peak_alive;
};

constexpr int kLayers = 8;

Placement placement_of(const Schedule& schedule) {
  return place_layers(
      {.num_layers = kLayers, .stages = schedule.stages, .chunks = schedule.chunks});
}

Results execute(const Schedule& schedule, const StepDurations* durations = nullptr) {
  const Placement placement = placement_of(schedule);
  Results results;
  results.clocks.resize(schedule.stages);
  results.peak_alive.resize(schedule.stages);
  std::mutex mutex;
  const WorldOptions options{.timeout = std::chrono::seconds(60)};
  run_thread_ranks(schedule.stages, options, [&](World& world) {
    const int rank = world.rank();
    std::vector<int> pipeline(world.size());
    for (int r = 0; r < world.size(); ++r) pipeline[r] = r;
    const PipelineGroups groups(world, pipeline, schedule.chunks);
    Runtime runtime;
    ToyStage stage(runtime, placement.ranks[rank]);
    LogicalClock clock;
    if (durations != nullptr) clock.durations = *durations;
    run_schedule(CheckedSchedule(schedule), rank, stage, groups.links(),
                 durations != nullptr ? &clock : nullptr);

    const std::lock_guard lock(mutex);
    results.gradients.merge(stage.gradients());
    for (const auto& [m, output] : stage.outputs) results.outputs[m] = to_values(output);
    for (const auto& [m, dinput] : stage.dinputs) results.dinputs[m] = to_values(dinput);
    results.clocks[rank] = clock;
    results.peak_alive[rank] = stage.peak_alive;
  });
  return results;
}

std::vector<Schedule> some_schedules(int stages) {
  std::vector<Schedule> schedules;
  for (int ahead : {0, 1, 3})
    for (int micro_batches : {1, 5, 8}) {
      const ScheduleConfig config{
          .stages = stages, .micro_batches = micro_batches, .receive_ahead = ahead};
      schedules.push_back(one_f_one_b(config));
      schedules.push_back(zero_bubble_h1(config));
    }
  for (int ahead : {0, 2})
    for (int group : {stages, 2 * stages})
      schedules.push_back(interleaved_one_f_one_b({.stages = stages,
                                                   .chunks = 2,
                                                   .micro_batches = 8,
                                                   .group_size = group,
                                                   .receive_ahead = ahead}));
  return schedules;
}

// Every layer sees the same numbers and adds its micro-batches in the same order as on one rank, so
// there is no tolerance.
TEST(PipelineEngine, EveryScheduleEqualsOneRankToTheBit) {
  for (int stages : {2, 4})
    for (const Schedule& schedule : some_schedules(stages)) {
      SCOPED_TRACE(str_cat(schedule.name, ", ", stages, " stages, ", schedule.micro_batches,
                           " micro-batches"));
      const Results one = execute(one_stage_schedule(schedule.micro_batches));
      const Results many = execute(schedule);
      EXPECT_EQ(one.gradients.size(), 2u * kLayers);
      EXPECT_EQ(many.gradients, one.gradients);
      EXPECT_EQ(many.outputs, one.outputs);
      EXPECT_EQ(many.dinputs, one.dinputs);
    }
}

// The toy's own gradients are right: against differences of sum(output * dy).
TEST(PipelineEngine, TheToysGradientsMatchFiniteDifferences) {
  Runtime& runtime = test_runtime();
  const std::vector<ChunkPlacement> chunks = place_layers({.num_layers = 2}).ranks[0];
  ToyModel model(chunks);
  ParameterStore store(model, runtime.device(), {.dtype = DType::f64, .seed = 3});
  expect_gradients_match(
      [&](std::span<const Tensor> in) { return model.forward(chunks[0], in[0]); },
      {numbers(0, 1, runtime.device())});
}

TEST(PipelineEngine, HoldsAsManyMicroBatchesAsTheCheckCounts) {
  for (const Schedule& schedule : some_schedules(4)) {
    const std::vector<int> expected = check_schedule(schedule).peak_alive;
    const Results results = execute(schedule);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(results.peak_alive[rank], size_t(expected[rank])) << schedule.name;
  }
}

TEST(PipelineEngine, EvaluationGivesTheSameOutputs) {
  const Results one = execute(one_stage_schedule(6));
  for (int chunks : {1, 2}) {
    const Results many = execute(forward_only({.stages = 2, .chunks = chunks, .micro_batches = 6}));
    EXPECT_EQ(many.outputs, one.outputs);
  }
}

// The clock that ran along with the execution, the simulated one and the closed form agree.
void expect_bubble(const Schedule& schedule, const StepDurations& durations, double closed_form) {
  SCOPED_TRACE(str_cat(schedule.name, ", ", schedule.stages, " stages"));
  const Timeline simulated = simulate(schedule, durations);
  const Results executed = execute(schedule, &durations);
  double makespan = 0;
  for (const LogicalClock& clock : executed.clocks) makespan = std::max(makespan, clock.now);
  EXPECT_EQ(makespan, simulated.makespan);  // sums of whole numbers
  for (int rank = 0; rank < schedule.stages; ++rank) {
    EXPECT_EQ(executed.clocks[rank].busy, simulated.busy[rank]);
    EXPECT_EQ(executed.clocks[rank].now, simulated.ranks[rank].back().end);
    EXPECT_NEAR(1 - executed.clocks[rank].busy / makespan, closed_form, 1e-12);  // one division
  }
}

TEST(PipelineEngine, ExecutedBubblesAreTheSimulatedOnesAndTheClosedForms) {
  for (int stages : {2, 4}) {
    for (int micro_batches : {4, 8, 9})
      expect_bubble(one_f_one_b({.stages = stages, .micro_batches = micro_batches}), {1, 2, 3},
                    one_f_one_b_bubble(stages, micro_batches));
    for (int micro_batches : {4, 8})
      expect_bubble(
          interleaved_one_f_one_b({.stages = stages, .chunks = 2, .micro_batches = micro_batches}),
          {1, 2, 3}, interleaved_bubble(stages, 2, micro_batches));
    for (int micro_batches : {4, 9})
      expect_bubble(zero_bubble_h1({.stages = stages, .micro_batches = micro_batches}), {1, 1, 1},
                    zero_bubble_h1_bubble(stages, micro_batches));
  }
}

// Communicators that only write down what is asked of them, as NCCL's would be: asynchronous.
class NotedCommunicator : public Communicator {
 public:
  NotedCommunicator(std::string name, int rank, bool asynchronous, std::vector<std::string>& notes)
      : Communicator({.name = name, .members = {0, 1}, .rank = rank}),
        asynchronous_(asynchronous),
        notes_(notes) {}
  bool asynchronous() const override { return asynchronous_; }

 protected:
  bool takes(DeviceKind kind) const override { return kind == DeviceKind::meta; }
  void do_all_reduce(const Tensor&, ReduceOp, const Tensor&, Stream) override { refuse(); }
  void do_all_gather(const Tensor&, const Tensor&, Stream) override { refuse(); }
  void do_reduce_scatter(const Tensor&, const Tensor&, const Tensor&, Stream) override { refuse(); }
  void do_broadcast(const Tensor&, int, Stream) override { refuse(); }
  void do_all_to_all(const Tensor&, std::span<const int64_t>, const Tensor&,
                     std::span<const int64_t>, Stream) override {
    refuse();
  }
  void do_exchange(std::span<const Message> messages, Stream stream) override {
    for (const Message& message : messages) {
      EXPECT_EQ(message.peer, message.kind == Message::Kind::send ? 1 : 0);
      notes_.push_back(str_cat(name(), " on ", static_cast<int>(stream.name())));
    }
  }
  void do_barrier() override { refuse(); }

 private:
  static void refuse() { FAIL() << "the engine only sends and receives"; }
  bool asynchronous_;
  std::vector<std::string>& notes_;
};

// A middle rank of a ring, on meta, with links that are asynchronous or not.
struct NotedRank {
  explicit NotedRank(Runtime& runtime, const Schedule& schedule)
      : stage(runtime, placement_of(schedule).ranks[1]), schedule(schedule) {}

  std::vector<std::string> run(bool asynchronous) {
    std::vector<std::string> notes;
    NotedCommunicator forward_in("fi", 1, asynchronous, notes);
    NotedCommunicator forward_out("fo", 0, asynchronous, notes);
    NotedCommunicator backward_in("bi", 1, asynchronous, notes);
    NotedCommunicator backward_out("bo", 0, asynchronous, notes);
    stage.begin_step();
    run_schedule(CheckedSchedule(schedule), 1, stage,
                 {&forward_in, &forward_out, &backward_in, &backward_out});
    return notes;
  }

  ToyStage stage;
  Schedule schedule;
};

constexpr int kForwardIn = static_cast<int>(StreamName::pp_forward_in);

TEST(PipelineEngine, AsynchronousReceivesAreEnqueuedWhereTheyArePosted) {
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  // rank 1: rf0 rf1 F0 sf0 F1 sf1 .. with receives one step ahead.
  NotedRank rank(runtime, one_f_one_b({.stages = 4, .micro_batches = 4}));
  const auto posted = rank.run(/*asynchronous=*/true);
  const std::string in = str_cat("fi on ", kForwardIn), out = str_cat("fo on ", kForwardIn + 1);
  EXPECT_EQ(posted[0], in);
  EXPECT_EQ(posted[1], in);
  EXPECT_EQ(posted[2], out);
  const auto used = rank.run(/*asynchronous=*/false);
  EXPECT_EQ(used[0], in);
  EXPECT_EQ(used[1], out);
  EXPECT_EQ(used.size(), posted.size());
}

// Keeps a handle on all it gave, to see when the engine lets go of its own.
class WatchingStage : public Stage {
 public:
  explicit WatchingStage(Runtime& runtime) : runtime_(runtime) {}
  Runtime& runtime() override { return runtime_; }
  MessageSpec input(int, int) const override { return {}; }
  MessageSpec output(int, int) const override { return {{"x", {2}, DType::f32}}; }
  StageMessage forward(int m, int, const StageMessage&) override {
    for (int i = 0; i < m; ++i)
      EXPECT_EQ(given[i].sole_owner(), m - i > kSendHold) << i << " during " << m;
    given.push_back(empty({2}, DType::f32, runtime_.device()));
    return {{"x", given.back()}};
  }
  StageMessage backward(int, int, const StageMessage&, bool) override { return {}; }
  void weight_backward(int, int) override {}

  std::vector<Tensor> given;

 private:
  Runtime& runtime_;
};

TEST(PipelineEngine, WhatIsSentIsHeldOverOneComputeStep) {
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  std::vector<std::string> notes;
  NotedCommunicator out("fo", 0, /*asynchronous=*/true, notes);
  WatchingStage stage(runtime);
  const CheckedSchedule schedule(forward_only({.stages = 2, .micro_batches = 4}));
  run_schedule(schedule, 0, stage, {.forward_out = &out});
  EXPECT_EQ(notes.size(), 4u);
  for (const Tensor& tensor : stage.given) EXPECT_TRUE(tensor.sole_owner());
}

// The plan of a step with one sort of communicator is replayed with the other.
TEST(PipelineEngine, MemoryDoesNotDependOnTheSortOfCommunicator) {
  for (const Schedule& schedule : some_schedules(4)) {
    Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
    NotedRank rank(runtime, schedule);
    Allocator& allocator = runtime.allocator();
    rank.run(/*asynchronous=*/false);  // what is made once: workspace of libraries
    for (const bool asynchronous : {false, false, true, false, true}) {
      allocator.begin_step("train");
      rank.run(asynchronous);
      allocator.end_step();
    }
    EXPECT_EQ(allocator.report().diverged_steps, 0) << allocator.last_divergence();
    EXPECT_EQ(allocator.report().replayed_steps, 3) << schedule.name;
  }
}

TEST(PipelineEngine, MetaRanksAllocateLikeThreads) {
  for (const Schedule& schedule : some_schedules(2)) {
    const Placement placement = placement_of(schedule);
    std::vector<MemoryReport> real(2), planned(2);
    const auto run = [&](World& world, Runtime& runtime, MemoryReport& report) {
      const PipelineGroups groups(world, {0, 1}, schedule.chunks);
      ToyStage stage(runtime, placement.ranks[world.rank()]);
      runtime.allocator().reset_peak();
      run_schedule(CheckedSchedule(schedule), world.rank(), stage, groups.links());
      report = runtime.allocator().report();
    };
    run_thread_ranks(2, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
      Runtime runtime;
      run(world, runtime, real[world.rank()]);
    });
    for (int rank = 0; rank < 2; ++rank) {
      MetaWorld world(rank, 2);
      Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
      run(world, runtime, planned[rank]);
      EXPECT_EQ(planned[rank].at_peak, real[rank].at_peak) << schedule.name << ", rank " << rank;
      EXPECT_EQ(planned[rank].live, real[rank].live);
    }
  }
}

// Nothing runs a schedule that was not checked: the engine takes CheckedSchedule alone, and one
// that is broken cannot be made.
TEST(PipelineEngine, ABrokenScheduleIsRefusedBeforeAnythingRuns) {
  static_assert(!std::is_convertible_v<Schedule, CheckedSchedule>);
  Schedule schedule = one_f_one_b({.stages = 2, .micro_batches = 2, .receive_ahead = 0});
  Runtime runtime;
  ToyStage stage(runtime, place_layers({.num_layers = 2, .stages = 2}).ranks[0]);
  std::swap(schedule.ranks[0][0], schedule.ranks[0][2]);  // the second forward, then the first
  const std::string error =
      error_of([&] { run_schedule(CheckedSchedule(schedule), 0, stage, {}); });
  EXPECT_NE(error.find("1F1B schedule, rank 0"), std::string::npos) << error;
  EXPECT_EQ(stage.peak_alive, 0u) << "no step was taken";
}

TEST(PipelineEngine, RefusesALinkThatIsNotThere) {
  Runtime runtime;
  ToyStage stage(runtime, place_layers({.num_layers = 2, .stages = 2}).ranks[0]);
  const CheckedSchedule schedule(
      one_f_one_b({.stages = 2, .micro_batches = 1, .receive_ahead = 0}));
  EXPECT_EQ(error_of([&] { run_schedule(schedule, 0, stage, {}); }),
            "pipeline: send_forward of micro-batch 0, chunk 0 has no link to go over");
  EXPECT_EQ(error_of([&] { run_schedule(schedule, 2, stage, {}); }),
            "1F1B schedule: there is no rank 2 among 2 stages");
}

class WrongShape : public ToyStage {
 public:
  using ToyStage::ToyStage;
  MessageSpec message() const override { return {{"x", {kRows, 7}, DType::f64}}; }
};

TEST(PipelineEngine, RefusesAResultThatIsNoMessage) {
  Runtime runtime;
  WrongShape stage(runtime, place_layers({.num_layers = 2, .stages = 2}).ranks[0]);
  const CheckedSchedule trains(one_f_one_b({.stages = 2, .micro_batches = 1}));
  EXPECT_EQ(error_of([&] { run_schedule(trains, 0, stage, {}); }),
            "pipeline: receive_backward of micro-batch 0, chunk 0 has no link to come over");
  const CheckedSchedule evaluates(forward_only({.stages = 2, .micro_batches = 1}));
  EXPECT_EQ(error_of([&] { run_schedule(evaluates, 0, stage, {}); }),
            "pipeline: the stage's forward of micro-batch 0, chunk 0 gave x [3, 5] in f64, but "
            "messages are [3, 7] in f64");
}

// Passes two tensors of different shape and type: an encoder's output beside a decoder's, say.
class TwoTensors : public Stage {
 public:
  TwoTensors(Runtime& runtime, bool first) : runtime_(runtime), first_(first) {}
  Runtime& runtime() override { return runtime_; }
  MessageSpec input(int m, int) const override { return first_ ? MessageSpec{} : message(m); }
  MessageSpec output(int m, int) const override { return first_ ? message(m) : MessageSpec{}; }
  StageMessage forward(int m, int, const StageMessage& input) override {
    if (first_) return numbered(m, 0);
    EXPECT_EQ(to_values(input.at("wide")), to_values(numbered(m, 0).at("wide")));
    EXPECT_EQ(to_values(input.at("narrow")), to_values(numbered(m, 0).at("narrow")));
    EXPECT_EQ(to_values(input.at("twin")), to_values(numbered(m, 0).at("twin")));
    ++seen;
    return {};
  }
  StageMessage backward(int m, int, const StageMessage& doutput, bool) override {
    if (!first_) return numbered(m, 50);
    EXPECT_EQ(to_values(doutput.at("wide")), to_values(numbered(m, 50).at("wide")));
    EXPECT_EQ(to_values(doutput.at("narrow")), to_values(numbered(m, 50).at("narrow")));
    EXPECT_EQ(to_values(doutput.at("twin")), to_values(numbered(m, 50).at("twin")));
    ++seen;
    return {};
  }
  void weight_backward(int, int) override {}
  int seen = 0;

 private:
  static MessageSpec message(int m) {  // micro-batches differ in length
    return {{"wide", {m + 1, 3}, DType::f64},
            {"narrow", {m + 2}, DType::f32},
            {"twin", {m + 2}, DType::f32}};
  }
  // Not in the order of the spec: nobody may rely on it.
  StageMessage numbered(int m, double first) const {
    StageMessage message;
    for (const TensorSpec& spec : std::views::reverse(this->message(m))) {
      std::vector<double> values(size_t(spec.shape.numel()));
      for (double& value : values) value = first++;
      message.add(spec.name, from_values(values, spec.shape, spec.dtype, runtime_.device()));
    }
    return message;
  }
  Runtime& runtime_;
  bool first_;
};

TEST(PipelineEngine, MessagesOfSeveralTensorsArriveByName) {
  const CheckedSchedule schedule(one_f_one_b({.stages = 2, .micro_batches = 3}));
  run_thread_ranks(2, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Runtime runtime;
    PipelineGroups groups(world, {0, 1}, 1);
    TwoTensors stage(runtime, world.rank() == 0);
    run_schedule(schedule, world.rank(), stage, groups.links());
    EXPECT_EQ(stage.seen, 3);
  });
}

TEST(PipelineEngine, RefusesAClockOnMeta) {
  Runtime runtime({.kind = DeviceKind::meta});
  ToyStage stage(runtime, place_layers({.num_layers = 2}).ranks[0]);
  LogicalClock clock;
  const CheckedSchedule schedule(one_stage_schedule(1));
  EXPECT_EQ(error_of([&] { run_schedule(schedule, 0, stage, {}, &clock); }),
            "pipeline: messages of meta ranks carry nothing, so no clock can run along; simulate() "
            "tells the same");
}

}  // namespace
}  // namespace phx
