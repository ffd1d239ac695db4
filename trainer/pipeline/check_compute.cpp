#include <cstdint>

#include "common/error.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/place.h"
#include "trainer/pipeline/transfers.h"
#include "trainer/pipeline/walk.h"

namespace tandem::pipeline {
namespace {

// What a stage has done with a micro-batch.
struct Progress {
    bool forward = false, input = false, weight = false;
};

void check_part(const Action& part, Progress& progress, const Place& place) {
    const auto once = [&](bool& done) {
        place.demand(!done, "stage {} has done that with micro-batch {} already", part.stage,
                     part.microbatch);
        done = true;
    };
    if (part.kind == ActionKind::forward) return once(progress.forward);
    place.demand(progress.forward, "it comes before its F");
    if (is_backward(part.kind)) once(progress.input);
    place.demand(progress.input, "it comes before its I");
    if (part.kind != ActionKind::backward_input) once(progress.weight);
}

void check_sizes(const Schedule& s) {
    enforce(s.stages() >= 1 && !s.ranks.empty() && s.microbatches >= 1, "the schedule has nothing to do");
    for (std::size_t stage = 0; stage < s.rank_of_stage.size(); ++stage) {
        const int rank = s.rank_of_stage[stage];
        enforce(rank >= 0 && rank < static_cast<int>(s.ranks.size()), "stage {} of {} is on no rank", stage,
                s.stages());
    }
    std::int64_t parts = 0;
    for (const ActionList& list : s.ranks)
        for (const Action& action : list) parts += static_cast<std::int64_t>(parts_of(action).size());
    const std::int64_t forwards = std::int64_t{s.stages()} * s.microbatches;
    enforce(parts >= 2 * forwards,
            "{} actions are too few for {} stages and {} micro-batches, which need an F and a B, or an F, an "
            "I and a W, each",
            parts, s.stages(), s.microbatches);
}

void check_runs(const Schedule& s) {
    Inputs inputs(s.stages(), s.microbatches);
    const std::vector<ActionList> parts =
        all_parts(s);  // which an overlap may run, and wait for, one after the other
    const auto ready = [&](std::size_t, const Action& part) { return inputs.has(part); };
    const auto run = [&](std::size_t, const Action& part) { inputs.finish(part); };
    check_all_done(parts, walk(parts, s.rank_of_stage, ready, run));
}

}  // namespace

void check_compute(const Schedule& s) {
    check_sizes(s);
    std::vector<Progress> progress(static_cast<std::size_t>(s.stages()) *
                                   static_cast<std::size_t>(s.microbatches));
    for (std::size_t rank = 0; rank < s.ranks.size(); ++rank) {
        for (std::size_t at = 0; at < s.ranks[rank].size(); ++at) {
            const Action& action = s.ranks[rank][at];
            const Place place{rank, at, &action};
            place.demand(is_compute(action.kind), "it is no compute action");
            for (const Action& part : parts_of(action)) {
                place.demand_own(part, s);
                check_part(
                    part,
                    progress[static_cast<std::size_t>(part.stage) * static_cast<std::size_t>(s.microbatches) +
                             static_cast<std::size_t>(part.microbatch)],
                    place);
            }
        }
    }
    for (std::size_t i = 0; i < progress.size(); ++i) {
        const auto microbatches = static_cast<std::size_t>(s.microbatches);
        const char* missing = !progress[i].forward  ? "F"
                              : !progress[i].input  ? "B, or I and W"
                              : !progress[i].weight ? "W"
                                                    : nullptr;
        enforce(missing == nullptr, "rank {}: stage {} has no {} of micro-batch {}",
                s.rank_of_stage[i / microbatches], i / microbatches, missing, i % microbatches);
    }
    check_runs(s);
}

}  // namespace tandem::pipeline
