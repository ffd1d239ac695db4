#include "trainer/pipeline/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "common/error.h"
#include "common/printable.h"
#include "trainer/pipeline/lists.h"

namespace tandem::pipeline {
namespace {

struct Kind {
    const char* name;
    ActionList (*list)(const Shape& shape, int rank);
    int stages_per_rank;  // that it takes; 0: any number
    bool there_and_back;  // a V: a rank has a stage of the way there and one of the way back
};

constexpr std::array<Kind, 7> kKinds = {{
    {"GPipe", gpipe, 1, false},
    {"1F1B", one_forward_one_backward, 1, false},
    {"Interleaved1F1B", interleaved_1f1b, 0, false},
    {"LoopedBFS", looped_bfs, 0, false},
    {"InterleavedZeroBubble", interleaved_zero_bubble, 0, false},
    {"ZBVZeroBubble", zbv_zero_bubble, 2, true},
    {"DualPipeV", dual_pipe_v, 2, true},
}};

std::string lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

const Kind& kind_of(const std::string& name) {
    const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                    [&](const Kind& k) { return lower_case(k.name) == lower_case(name); });
    enforce(kind != kKinds.end(), "there is no schedule {}; known: {}", printable(name),
            fmt::join(schedule_names(), ", "));
    return *kind;
}

void check_size(const Shape& shape) {
    constexpr std::int64_t kMostForwards = 1 << 20;
    const auto at_least_one = [](const char* what, int number) {
        enforce(number >= 1, "{}({}) must be at least 1", what, number);
    };
    at_least_one("pp", shape.ranks);
    at_least_one("stages", shape.stages_per_rank);
    at_least_one("microbatches", shape.microbatches);
    enforce(shape.ranks <= kMostForwards / shape.stages_per_rank / shape.microbatches,
            "{} ranks x {} stages x {} micro-batches: a schedule has at most {} forwards; choose fewer "
            "micro-batches",
            shape.ranks, shape.stages_per_rank, shape.microbatches, kMostForwards);
}

bool admits_interleaved(Shape shape, int microbatches) {
    shape.microbatches = microbatches;
    return microbatches % rounds_of_interleaved(shape) == 0;
}

void check_rounds(const char* name, const Shape& shape) {
    if (admits_interleaved(shape, shape.microbatches)) return;
    int below = shape.microbatches,
        above = shape.microbatches;  // a multiple of pp is admitted, so both ends are near
    while (!admits_interleaved(shape, below)) --below;
    while (!admits_interleaved(shape, above)) ++above;
    enforce(false,
            "{} with pp {} runs {} micro-batches in {} rounds, by which they cannot be divided; {} and {} "
            "are admitted",
            name, shape.ranks, shape.microbatches, rounds_of_interleaved(shape), below, above);
}

void check_microbatches(const char* name, const Shape& shape, int least) {
    enforce(shape.microbatches >= least, "{} with pp {} needs at least {} micro-batches, not {}", name,
            shape.ranks, least, shape.microbatches);
}

void check_stages(const Kind& kind, int stages_per_rank) {
    enforce(kind.stages_per_rank == 0 || stages_per_rank == kind.stages_per_rank,
            "{} has exactly {} a rank, not {}; Interleaved1F1B, LoopedBFS and InterleavedZeroBubble take any "
            "number",
            kind.name, kind.stages_per_rank == 1 ? "1 stage" : "2 stages", stages_per_rank);
}

void check_admitted(const Kind& kind, const Shape& shape) {
    check_stages(kind, shape.stages_per_rank);
    if (kind.list == one_forward_one_backward) check_microbatches(kind.name, shape, shape.ranks);
    if (kind.list == dual_pipe_v) check_microbatches(kind.name, shape, 2 * shape.ranks);
    if (kind.list == interleaved_1f1b || kind.list == interleaved_zero_bubble) check_rounds(kind.name, shape);
}

}  // namespace

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    for (const Kind& kind : kKinds) names.push_back(kind.name);
    return names;
}

std::string schedule_name(const std::string& name) {
    return kind_of(name).name;
}

std::vector<int> ranks_of_stages(const std::string& name, int ranks, int stages_per_rank) {
    const Kind& kind = kind_of(name);
    std::vector<int> result;
    for (int stage = 0; stage < ranks * stages_per_rank; ++stage) {
        const bool back = kind.there_and_back && stage >= ranks;
        result.push_back(back ? 2 * ranks - 1 - stage : stage % ranks);
    }
    return result;
}

int usual_stages_per_rank(const std::string& name) {
    return kind_of(name).stages_per_rank == 1 ? 1 : 2;
}

int admitted_microbatches(const std::string& name, int ranks, int stages_per_rank, int least) {
    const Kind& kind = kind_of(name);
    check_stages(kind, stages_per_rank);
    const Shape shape{ranks, stages_per_rank, std::max(1, least)};
    if (kind.list == one_forward_one_backward) return std::max(shape.microbatches, ranks);
    if (kind.list == dual_pipe_v) return std::max(shape.microbatches, 2 * ranks);
    int count = shape.microbatches;
    if (kind.list != interleaved_1f1b && kind.list != interleaved_zero_bubble) return count;
    while (!admits_interleaved(shape, count)) ++count;  // a multiple of pp is admitted
    return count;
}

Schedule make_schedule(const std::string& name, int ranks, int stages_per_rank, int microbatches) {
    const Kind& kind = kind_of(name);
    const Shape shape{ranks, stages_per_rank, microbatches};
    check_size(shape);
    check_admitted(kind, shape);
    Schedule schedule;
    schedule.microbatches = microbatches;
    schedule.rank_of_stage = ranks_of_stages(name, ranks, stages_per_rank);
    for (int rank = 0; rank < ranks; ++rank) schedule.ranks.push_back(kind.list(shape, rank));
    return schedule;
}

}  // namespace tandem::pipeline
