#include "phalanx/parallel/pipeline/engine.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/core/op_trace.h"

namespace phx {
namespace {

constexpr int kSender = 0, kReceiver = 1;  // within a link's group

// A receive that has been posted. `stamp` is the sender's time, if there is a clock.
struct Incoming {
  ScheduleStep step;
  StageMessage message;
  Tensor stamp;
  Fence fence;
  bool enqueued = false;
};

struct Outgoing {
  StageMessage message;
  Tensor stamp;
  Fence fence;
  int num_computes = 0;  // compute steps before it
};

class InLink {
 public:
  InLink(Communicator* link, Stream stream, Stream compute)
      : link_(link), stream_(stream), compute_(compute) {}

  void post(Incoming incoming) {
    PHX_CHECK(link_ != nullptr, "pipeline: ", incoming.step, " has no link to come over");
    posted_.push_back(std::move(incoming));
    if (link_->asynchronous()) enqueue(posted_.back());
  }

  // The message of `step`, after which the compute stream may use it.
  Incoming take(const ScheduleStep& step) {
    const auto wanted = std::find_if(posted_.begin(), posted_.end(),
                                     [&](const Incoming& posted) { return posted.step == step; });
    PHX_ASSERT(wanted != posted_.end(), step, " was not posted");
    for (auto i = posted_.begin(); i <= wanted; ++i)  // messages come in the order of posting
      if (!i->enqueued) enqueue(*i);
    Incoming incoming = std::move(*wanted);
    posted_.erase(wanted);
    compute_.wait(incoming.fence);
    return incoming;
  }

 private:
  void enqueue(Incoming& incoming) {
    stream_.wait(compute_.record());
    for (auto [name, tensor] : incoming.message) link_->receive(tensor, kSender, stream_);
    if (incoming.stamp.defined()) link_->receive(incoming.stamp, kSender, stream_);
    incoming.fence = stream_.record();
    incoming.enqueued = true;
  }

  Communicator* link_;
  Stream stream_, compute_;
  std::deque<Incoming> posted_;
};

class Engine {
 public:
  Engine(const Schedule& schedule, int rank, Stage& stage, const PipelineLinks& links,
         LogicalClock* clock)
      : schedule_(schedule),
        rank_(rank),
        defers_(defers_weights(schedule)),
        stage_(stage),
        links_(links),
        clock_(clock),
        compute_(stage.runtime().stream(StreamName::compute)),
        forward_in_(links.forward_in, stream(StreamName::pp_forward_in), compute_),
        backward_in_(links.backward_in, stream(StreamName::pp_backward_in), compute_) {}

  void run() {
    for (const ScheduleStep& step : schedule_.ranks[rank_]) run(step);
    let_go(num_computes_ + kSendHold);  // of all that is still under way
  }

 private:
  void run(const ScheduleStep& step) {
    switch (step.kind) {
      case StepKind::forward:
        return forward(step);
      case StepKind::backward:
        return backward(step);
      case StepKind::weight_backward:
        return weight_backward(step);
      case StepKind::receive_forward:
        return forward_in_.post(incoming(step));
      case StepKind::receive_backward:
        return backward_in_.post(incoming(step));
      case StepKind::send_forward:
        return send(step, links_.forward_out, stream(StreamName::pp_forward_out));
      case StepKind::send_backward:
        return send(step, links_.backward_out, stream(StreamName::pp_backward_out));
    }
  }

  void forward(const ScheduleStep& step) {
    const auto [kind, m, c] = step;
    let_go(num_computes_);
    Incoming input;
    if (!is_model_begin(rank_, c)) input = forward_in_.take({StepKind::receive_forward, m, c});
    {
      const OpScope traced = phase("forward", step);
      result_ = stage_.forward(m, c, input.message);
    }
    check_result(step, stage_.output(m, c), !is_model_end(schedule_, rank_, c));
    tick(step, input.stamp);
  }

  void backward(const ScheduleStep& step) {
    const auto [kind, m, c] = step;
    let_go(num_computes_);
    Incoming input;
    if (!is_model_end(schedule_, rank_, c))
      input = backward_in_.take({StepKind::receive_backward, m, c});
    {
      const OpScope traced = phase("backward", step);
      result_ = stage_.backward(m, c, input.message, defers_);
    }
    check_result(step, stage_.input(m, c), !is_model_begin(rank_, c));
    tick(step, input.stamp);
  }

  void weight_backward(const ScheduleStep& step) {
    let_go(num_computes_);
    {
      const OpScope traced = phase("weight_backward", step);
      stage_.weight_backward(step.micro_batch, step.chunk);
    }
    tick(step, /*stamp=*/{});
  }

  OpScope phase(const char* what, const ScheduleStep& step) {
    return {stage_.runtime(),
            {.what = what, .number = step.micro_batch, .chunk = step.chunk, .kind = OpKind::phase}};
  }

  // The compute stream waits for the sends that compute step number `compute` must not overtake.
  void let_go(int compute) {
    while (!under_way_.empty() && under_way_.front().num_computes + kSendHold <= compute) {
      compute_.wait(under_way_.front().fence);
      under_way_.pop_front();
    }
  }

  Incoming incoming(const ScheduleStep& step) const {
    const Device device = stage_.runtime().device();
    const bool forward = step.kind == StepKind::receive_forward;
    Incoming incoming{.step = step};
    for (const TensorSpec& spec : forward ? stage_.input(step.micro_batch, step.chunk)
                                          : stage_.output(step.micro_batch, step.chunk))
      incoming.message.add(spec.name, empty(spec.shape, spec.dtype, device, Purpose::activations));
    if (clock_ != nullptr) incoming.stamp = empty({1}, DType::f64, device, Purpose::communication);
    return incoming;
  }

  void send(const ScheduleStep& step, Communicator* link, Stream out) {
    PHX_CHECK(link != nullptr, "pipeline: ", step, " has no link to go over");
    Outgoing outgoing{.message = std::exchange(result_, {}), .num_computes = num_computes_};
    if (clock_ != nullptr) {
      outgoing.stamp = empty({1}, DType::f64, stage_.runtime().device(), Purpose::communication);
      copy_from_host(outgoing.stamp, &clock_->now);
    }
    out.wait(compute_.record());
    for (const auto& [name, tensor] : outgoing.message) link->send(tensor, kReceiver, out);
    if (clock_ != nullptr) link->send(outgoing.stamp, kReceiver, out);
    outgoing.fence = out.record();
    under_way_.push_back(std::move(outgoing));
  }

  void check_result(const ScheduleStep& step, const MessageSpec& specs, bool goes_on) {
    PHX_CHECK(result_.empty() != goes_on, "pipeline: the stage's ", step, " gave ",
              goes_on ? "nothing to pass on" : "a result, where nobody is to take it");
    if (!goes_on) return;
    PHX_CHECK(result_.size() == specs.size(), "pipeline: the stage's ", step, " gave ",
              result_.size(), " tensors, but messages have ", specs.size());
    StageMessage ordered;  // tensors travel in the order of the spec, which both ends know
    for (const TensorSpec& spec : specs) {
      const Tensor& tensor = result_.at(spec.name);
      ordered.add(spec.name, tensor);
      PHX_CHECK(tensor.shape() == spec.shape && tensor.dtype() == spec.dtype,
                "pipeline: the stage's ", step, " gave ", spec.name, " ", tensor.shape(), " in ",
                tensor.dtype(), ", but messages are ", spec.shape, " in ", spec.dtype);
    }
    result_ = std::move(ordered);
  }

  // A compute step is done; its input was made at the time of `stamp`.
  void tick(const ScheduleStep& step, const Tensor& stamp) {
    ++num_computes_;
    if (clock_ == nullptr) return;
    if (stamp.defined()) {
      double made = 0;
      copy_to_host(stamp, &made);
      clock_->now = std::max(clock_->now, made);
    }
    const double duration = duration_of(step.kind, clock_->durations, defers_);
    clock_->now += duration;
    clock_->busy += duration;
  }

  Stream stream(StreamName name) const { return stage_.runtime().stream(name); }

  const Schedule& schedule_;
  int rank_;
  bool defers_;
  Stage& stage_;
  PipelineLinks links_;
  LogicalClock* clock_;
  Stream compute_;
  InLink forward_in_, backward_in_;
  std::deque<Outgoing> under_way_;
  StageMessage result_;   // of the last compute step, until it is sent
  int num_computes_ = 0;  // so far
};

}  // namespace

void run_schedule(const CheckedSchedule& checked, int rank, Stage& stage,
                  const PipelineLinks& links, LogicalClock* clock) {
  const Schedule& schedule = *checked;
  PHX_CHECK(rank >= 0 && rank < schedule.stages, schedule.name, " schedule: there is no rank ",
            rank, " among ", schedule.stages, " stages");
  PHX_CHECK(clock == nullptr || stage.runtime().kind() != DeviceKind::meta,
            "pipeline: messages of meta ranks carry nothing, so no clock can run along; simulate() "
            "tells the same");
  Engine(schedule, rank, stage, links, clock).run();
}

}  // namespace phx
