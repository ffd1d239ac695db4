#include "trainer/policy/pipeline_run.h"

#include <fmt/core.h>

#include <chrono>
#include <set>
#include <utility>

#include "common/error.h"
#include "common/trace.h"
#include "trainer/pipeline/transfers.h"

namespace tandem::trainer {

using pipeline::Action;
using pipeline::ActionKind;

namespace {

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

}  // namespace

PipelineRun::PipelineRun(comm::Communicator& pipeline, std::vector<int> rank_of_stage, Stream& compute,
                         bool overlaps)
    : rank_of_stage_(std::move(rank_of_stage)), pipeline_(pipeline), compute_(compute) {
    std::set<std::pair<int, int>> edges;  // in one order on all ranks, so that no two wait for each other
    for (std::size_t stage = 0; stage + 1 < rank_of_stage_.size(); ++stage) {
        const int a = rank_of_stage_[stage], b = rank_of_stage_[stage + 1];
        if (a != b) edges.insert({{a, b}, {b, a}});
    }
    const std::vector<int>& ranks = pipeline.global_ranks();
    for (const auto& [from, to] : edges) {
        if (from != pipeline.rank() && to != pipeline.rank()) continue;
        const std::string name = fmt::format("{}.{}-{}", pipeline.name(), from, to);
        auto group = pipeline.split(
            {ranks[static_cast<std::size_t>(from)], ranks[static_cast<std::size_t>(to)]}, name);
        channels_.emplace(
            std::pair(from, to),
            Channel{std::move(group), overlaps ? Stream::make(compute.device(), name) : Stream::make_inline(),
                    from == pipeline.rank() ? 1 : 0});
    }
}

bool PipelineRun::is_here(int stage) const {
    return rank_of_stage_[static_cast<std::size_t>(stage)] == pipeline_.rank();
}

void PipelineRun::run(const pipeline::ActionList& list, const StageWork& work) {
    times_.clear();
    for (const Action& action : list) {
        for (const Action& part : parts_of(action)) {
            try {
                act(part, work);
            } catch (const TransportError& error) {
                throw Error(fmt::format("stage {}, micro-batch {}, {}: {}", part.stage, part.microbatch,
                                        to_string(action), error.what()));
            }
        }
    }
    finish();
}

void PipelineRun::act(const Action& action, const StageWork& work) {
    switch (action.kind) {
        case ActionKind::forward:
            return forward(action, work);
        case ActionKind::full_backward:
            return backward(action, work.backward);
        case ActionKind::backward_input:
            return backward(action, work.backward_input);
        case ActionKind::backward_weight:
            timed(action, [&] {
                work.backward_weight(action.stage, action.microbatch);
                return Tensor();
            });
            return;
        case ActionKind::send_f:
        case ActionKind::send_b:
            return send(action);
        case ActionKind::recv_f:
        case ActionKind::recv_b:
            return receive(action, work.room(action.microbatch));
        default:
            return;
    }
}

Tensor PipelineRun::timed(const Action& action, const std::function<Tensor()>& work) {
    const trace::Scope scope(to_string(action), "pipeline");
    const double start = now_ms();
    Tensor made = work();
    times_.push_back({action, start, now_ms()});
    return made;
}

void PipelineRun::forward(const Action& action, const StageWork& work) {
    const Place here{action.stage, action.microbatch};
    Tensor x = input(x_, here);
    Tensor y = timed(action, [&] { return work.forward(action.stage, action.microbatch, std::move(x)); });
    const int next = action.stage + 1;
    if (next == static_cast<int>(rank_of_stage_.size())) return;
    if (is_here(next))
        x_[{next, action.microbatch}] = {std::move(y), {}};
    else
        y_[here] = std::move(y);
}

void PipelineRun::backward(const Action& action, const std::function<Tensor(int, int, Tensor)>& work) {
    const Place here{action.stage, action.microbatch};
    Tensor dy = input(dy_, here);
    Tensor dx = timed(action, [&] { return work(action.stage, action.microbatch, std::move(dy)); });
    const int before = action.stage - 1;
    if (before < 0) return;
    if (is_here(before))
        dy_[{before, action.microbatch}] = {std::move(dx), {}};
    else
        dx_[here] = std::move(dx);
}

Tensor PipelineRun::input(std::map<Place, Travelling>& inputs, Place place) {
    const auto found = inputs.find(place);
    if (found == inputs.end()) return {};  // of the first stage's forward, the last one's backward
    Travelling came = std::move(found->second);
    inputs.erase(found);
    compute_.wait(came.work.event());
    return std::move(came.tensor);
}

PipelineRun::Channel& PipelineRun::channel_of(const Action& send_or_recv) {
    const auto transfer = pipeline::transfer_of(send_or_recv, rank_of_stage_);
    require(transfer.has_value(), "{} goes nowhere", to_string(send_or_recv));
    return channels_.at({transfer->from, transfer->to});
}

void PipelineRun::send(const Action& action) {
    while (!sent_.empty() && sent_.front().work.poll() != Poll::pending) sent_.pop_front();
    auto& outputs = action.kind == ActionKind::send_f ? y_ : dx_;
    Travelling going{std::move(outputs.at({action.stage, action.microbatch})), {}};
    outputs.erase({action.stage, action.microbatch});
    Channel& channel = channel_of(action);
    channel.stream.wait(compute_.record());
    const comm::P2POp op{comm::P2POp::Kind::send, channel.peer, going.tensor.span()};
    going.work = channel.group->p2p(std::span(&op, 1), channel.stream);
    sent_.push_back(std::move(going));
}

void PipelineRun::receive(const Action& action, Tensor room) {
    Channel& channel = channel_of(action);
    channel.stream.wait(compute_.record());  // which may still use the memory as something else
    const comm::P2POp op{comm::P2POp::Kind::recv, channel.peer, room.span()};
    Travelling coming{std::move(room), channel.group->p2p(std::span(&op, 1), channel.stream)};
    auto& inputs = action.kind == ActionKind::recv_f ? x_ : dy_;
    inputs[{action.stage, action.microbatch}] = std::move(coming);
}

void PipelineRun::finish() {
    try {
        for (const Travelling& going : sent_) compute_.wait(going.work.event());
    } catch (const TransportError& error) {
        throw Error(fmt::format("what rank {} of '{}' sent last: {}", pipeline_.rank(), pipeline_.name(),
                                error.what()));
    }
    sent_.clear();
}

}  // namespace tandem::trainer
