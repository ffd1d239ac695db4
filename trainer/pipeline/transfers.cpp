#include "trainer/pipeline/transfers.h"

#include <algorithm>
#include <utility>

namespace tandem::pipeline {
namespace {

constexpr double kNotYet = -1;

bool goes_forward(ActionKind kind) {
    return kind == ActionKind::forward || kind == ActionKind::send_f || kind == ActionKind::recv_f;
}

// From `stage`, one on or one back.
std::optional<Transfer> transfer_from(int stage, bool forward, int microbatch,
                                      const std::vector<int>& rank_of_stage) {
    const int other = forward ? stage + 1 : stage - 1;
    if (stage < 0 || other < 0 || std::max(stage, other) >= static_cast<int>(rank_of_stage.size())) return {};
    const int from = rank_of_stage[static_cast<std::size_t>(stage)];
    const int to = rank_of_stage[static_cast<std::size_t>(other)];
    if (from == to) return {};
    return Transfer{{forward ? ActionKind::send_f : ActionKind::send_b, stage, microbatch},
                    {forward ? ActionKind::recv_f : ActionKind::recv_b, other, microbatch},
                    from,
                    to};
}

}  // namespace

std::optional<Transfer> transfer_after(const Action& action, const std::vector<int>& rank_of_stage) {
    if (action.kind != ActionKind::forward && !is_backward(action.kind)) return {};
    return transfer_from(action.stage, goes_forward(action.kind), action.microbatch, rank_of_stage);
}

std::optional<Transfer> transfer_of(const Action& action, const std::vector<int>& rank_of_stage) {
    const bool forward = goes_forward(action.kind);
    const bool receives = action.kind == ActionKind::recv_f || action.kind == ActionKind::recv_b;
    const int stage = !receives ? action.stage : forward ? action.stage - 1 : action.stage + 1;
    return transfer_from(stage, forward, action.microbatch, rank_of_stage);
}

Inputs::Inputs(int stages, int microbatches)
    : stages_(stages),
      microbatches_(microbatches),
      forward_(static_cast<std::size_t>(stages) * static_cast<std::size_t>(microbatches), kNotYet),
      backward_(forward_) {
    for (int i = 0; i < microbatches; ++i) forward_[at(0, i)] = 0;
}

double Inputs::came(const Action& action) const {
    if (action.kind == ActionKind::forward) return forward_[at(action.stage, action.microbatch)];
    return is_backward(action.kind) ? backward_[at(action.stage, action.microbatch)] : 0;
}

void Inputs::finish(const Action& action, double when) {
    const bool forward = action.kind == ActionKind::forward;
    if (forward && action.stage + 1 < stages_) forward_[at(action.stage + 1, action.microbatch)] = when;
    if (forward && action.stage + 1 == stages_) backward_[at(action.stage, action.microbatch)] = when;
    if (is_backward(action.kind) && action.stage > 0)
        backward_[at(action.stage - 1, action.microbatch)] = when;
}

bool Inputs::receive(const Action& recv) {
    double& input = (recv.kind == ActionKind::recv_f ? forward_ : backward_)[at(recv.stage, recv.microbatch)];
    return std::exchange(input, 0) < 0;
}

std::size_t Inputs::at(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(microbatches_) +
           static_cast<std::size_t>(microbatch);
}

}  // namespace tandem::pipeline
