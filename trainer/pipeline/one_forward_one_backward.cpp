// Forwards and backwards by turns, once as many micro-batches are under way as the ranks behind need.
#include <algorithm>

#include "trainer/pipeline/lists.h"

namespace tandem::pipeline {
namespace {

// With several stages a rank they take turns, a round of micro-batches each. A zero bubble's backward is cut in two: weights wait
// for `rank` further inputs, and what is left of them fills the end.
ActionList interleaved(const Shape& shape, int rank, bool zero_bubble) {
    const int round = shape.microbatches / rounds_of_interleaved(shape);
    const int forwards = shape.stages_per_rank * shape.microbatches;
    const int warmup = std::min(
        (shape.stages_per_rank - 1) * round + (zero_bubble ? 1 : 2) * (shape.ranks - 1 - rank), forwards);
    const ActionKind backward_kind = zero_bubble ? ActionKind::backward_input : ActionKind::full_backward;
    std::vector<int> next_forward(static_cast<std::size_t>(shape.stages_per_rank)),
        next_backward = next_forward;
    ActionList list, backwards;
    std::size_t weights = 0;  // of as many of the backwards
    const auto add = [&](ActionKind kind, int local, std::vector<int>& next) {
        list.push_back({kind, local * shape.ranks + rank, next[static_cast<std::size_t>(local)]++});
    };
    const auto add_weight = [&] {
        const Action& input = backwards[weights++];
        list.push_back({ActionKind::backward_weight, input.stage, input.microbatch});
    };
    for (int op = 0; op < warmup + forwards; ++op) {
        if (op < forwards) add(ActionKind::forward, op / round % shape.stages_per_rank, next_forward);
        const int backward = op - warmup;
        if (backward < 0) continue;
        add(backward_kind, shape.stages_per_rank - 1 - backward / round % shape.stages_per_rank,
            next_backward);
        backwards.push_back(list.back());
        if (zero_bubble && backward >= rank) add_weight();
    }
    while (zero_bubble && weights < backwards.size()) add_weight();
    return list;
}

}  // namespace

ActionList one_forward_one_backward(const Shape& shape, int rank) {
    ActionList list;
    int forward = 0;
    while (forward < std::min(shape.microbatches, shape.ranks - rank))
        list.push_back({ActionKind::forward, rank, forward++});
    for (int i = 0; i < shape.microbatches; ++i) {
        list.push_back({ActionKind::full_backward, rank, i});
        if (forward < shape.microbatches) list.push_back({ActionKind::forward, rank, forward++});
    }
    return list;
}

ActionList interleaved_1f1b(const Shape& shape, int rank) {
    return interleaved(shape, rank, false);
}

ActionList interleaved_zero_bubble(const Shape& shape, int rank) {
    return interleaved(shape, rank, true);
}

int rounds_of_interleaved(const Shape& shape) {
    return std::max(1, shape.microbatches / shape.ranks);
}

}  // namespace tandem::pipeline
