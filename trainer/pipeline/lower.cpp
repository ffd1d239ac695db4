#include "trainer/pipeline/lower.h"

#include <algorithm>
#include <list>
#include <map>
#include <span>

#include "common/error.h"
#include "trainer/pipeline/transfers.h"
#include "trainer/pipeline/walk.h"

namespace tandem::pipeline {
namespace {

// [action]: the next `count` distinct stages, the action's own first. Found from the end: what is used moves to the front.
std::vector<std::vector<int>> next_stages(const ActionList& list, std::size_t count) {
    std::vector<std::vector<int>> next(list.size());
    std::list<int> order;
    std::map<int, std::list<int>::iterator> place;
    for (std::size_t i = list.size(); i-- > 0;) {
        const std::span<const Action> parts = parts_of(list[i]);
        for (std::size_t part = parts.size(); part-- > 0;) {
            const int stage = parts[part].stage;
            const auto [at, is_new] = place.try_emplace(stage);
            if (!is_new) order.erase(at->second);
            at->second = order.insert(order.begin(), stage);
        }
        for (auto stage = order.begin(); stage != order.end() && next[i].size() < count; ++stage)
            next[i].push_back(*stage);
    }
    return next;
}

bool contains(const std::vector<int>& stages, int stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

}  // namespace

ActionList add_unshard_reshard(const ActionList& list, int max_active_stages) {
    require(max_active_stages >= 2, "max_active_stages({}): an overlapped pair needs 2", max_active_stages);
    const auto next = next_stages(list, static_cast<std::size_t>(max_active_stages));
    ActionList result;
    std::vector<int> active;
    for (std::size_t i = 0; i < list.size(); ++i) {
        for (const int stage : active)
            if (!contains(next[i], stage)) result.push_back({ActionKind::reshard, stage});
        std::erase_if(active, [&](int stage) { return !contains(next[i], stage); });
        for (const int stage : next[i]) {
            if (contains(active, stage)) continue;
            active.push_back(stage);
            result.push_back({ActionKind::unshard, stage});
        }
        result.push_back(list[i]);
    }
    for (const int stage : active) result.push_back({ActionKind::reshard, stage});
    return result;
}

ActionList add_reduce_grad(const ActionList& list, int microbatches) {
    ActionList result;
    std::map<int, int> gradients;  // of a stage: finished micro-batches
    for (const Action& action : list) {
        result.push_back(action);
        for (const Action& part : parts_of(action)) {
            if (part.kind != ActionKind::full_backward && part.kind != ActionKind::backward_weight) continue;
            if (++gradients[part.stage] == microbatches)
                result.push_back({ActionKind::reduce_grad, part.stage});
        }
    }
    return result;
}

std::vector<ActionList> add_send_recv(const std::vector<ActionList>& ranks,
                                      const std::vector<int>& rank_of_stage, int microbatches) {
    std::vector<ActionList> result(ranks.size());
    Inputs inputs(static_cast<int>(rank_of_stage.size()), microbatches);
    const auto ready = [&](std::size_t, const Action& action) {
        const auto parts = parts_of(action);
        return std::all_of(parts.begin(), parts.end(), [&](const Action& part) { return inputs.has(part); });
    };
    const auto place = [&](std::size_t rank, const Action& action) {
        result[rank].push_back(action);
        for (const Action& part : parts_of(action)) {
            inputs.finish(part);
            const auto transfer = transfer_after(part, rank_of_stage);
            if (!transfer) continue;
            result[rank].push_back(transfer->send);
            result[static_cast<std::size_t>(transfer->to)].push_back(transfer->recv);
        }
    };
    check_all_done(ranks, walk(ranks, rank_of_stage, ready, place));
    return result;
}

Schedule lower(const Schedule& compute, int max_active_stages) {
    Schedule lowered = compute;
    for (ActionList& list : lowered.ranks)
        list = add_reduce_grad(add_unshard_reshard(list, max_active_stages), compute.microbatches);
    lowered.ranks = add_send_recv(lowered.ranks, compute.rank_of_stage, compute.microbatches);
    return lowered;
}

Schedule compute_of(const Schedule& lowered) {
    Schedule compute = lowered;
    for (ActionList& list : compute.ranks)
        std::erase_if(list, [](const Action& a) { return !is_compute(a.kind); });
    return compute;
}

}  // namespace tandem::pipeline
