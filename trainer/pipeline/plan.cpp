#include "trainer/pipeline/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "common/error.h"
#include "common/printable.h"
#include "trainer/pipeline/check.h"
#include "trainer/pipeline/csv.h"
#include "trainer/pipeline/lower.h"

namespace tandem::pipeline {
namespace {

// That layers_per_stage asks for, rounded to the ranks.
int stages_of_size(const Options& o, int ranks, int layers) {
    const int weight = layers + o.first_stage_less_layers + o.last_stage_less_layers;
    const int stages = (weight + o.layers_per_stage - 1) / o.layers_per_stage;
    const int over = stages % ranks;
    if (over == 0) return stages;
    if (o.round == Options::Round::up) return stages + ranks - over;
    if (o.round == Options::Round::down && stages > ranks) return stages - over;
    throw BadInput(fmt::format(
        "layers_per_stage {} makes {} stages of {} layers and what embedding and head weigh, which pp {} "
        "does not divide; choose another, or round_to_pp_multiple",
        o.layers_per_stage, stages, layers, ranks));
}

// The layer that a module's name begins a stage with: "model.layers.4", "layers.4"; the number of layers for what comes behind
// the last one.
int layer_of(const std::string& name, int layers) {
    std::string_view rest = name;
    if (rest.starts_with("model.")) rest.remove_prefix(6);
    if (rest == "norm" || rest == "lm_head") return layers;
    int layer = -1;
    if (rest.starts_with("layers.")) {
        rest.remove_prefix(7);
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
        if (error != std::errc() || end != rest.data() + rest.size()) layer = -1;
    }
    if (layer < 0 || layer >= layers)
        throw BadInput(
            fmt::format("split: {} begins no stage; there are model.layers.0 to model.layers.{} and "
                        "model.norm",
                        printable(name), layers - 1));
    return layer;
}

std::vector<DecoderPart> split_at(const std::vector<std::string>& names, int layers) {
    std::vector<DecoderPart> parts{{0, layers, true, true}};
    for (const std::string& name : names) {
        const int layer = layer_of(name, layers);
        DecoderPart& before = parts.back();
        const bool first = parts.size() == 1;
        if (layer < before.first_layer || (!first && layer == before.first_layer))
            throw BadInput(fmt::format("split: {} is not behind the stage before it", printable(name)));
        before.end_layer = layer;
        before.heads = false;
        parts.push_back({layer, layers, false, true});
    }
    return parts;
}

int stages_asked(const Options& o, int ranks, int layers) {
    if (!o.split.empty()) return static_cast<int>(o.split.size()) + 1;
    if (o.layers_per_stage > 0) return stages_of_size(o, ranks, layers);
    return ranks * (o.stages_per_rank > 0 ? o.stages_per_rank : usual_stages_per_rank(o.schedule));
}

// Where the file tells nothing of it, of the order of its ranks.
void check_lists(const Schedule& lists, int ranks) {
    enforce(static_cast<int>(lists.ranks.size()) == ranks, "pp is {}, and the lists are of {}", ranks,
            lists.ranks.size() == 1 ? "1 rank" : fmt::format("{} ranks", lists.ranks.size()));
    const Schedule compute = compute_of(lists);
    check_compute(compute);
    check_lowered(has_communication(lists) ? lists : lower(compute), compute);
}

}  // namespace

Plan::Plan(Options options, int ranks, int layers) : options_(std::move(options)), ranks_(ranks) {
    const Options& o = options_;
    if (!o.split.empty()) parts_ = split_at(o.split, layers);
    int stages = stages_asked(o, ranks, layers);
    if (o.lists) {
        check_lists(*o.lists, ranks);
        rank_of_stage_ = o.lists->rank_of_stage;
        if (o.split.empty() && o.layers_per_stage == 0 && o.stages_per_rank == 0) stages = o.lists->stages();
        enforce(stages == o.lists->stages(), "the lists have {} stages, and {} are asked for",
                o.lists->stages(), stages);
    } else {
        enforce(stages % ranks == 0, "{} stages, which pp {} does not divide", stages, ranks);
        enforce(o.stages_per_rank == 0 || o.stages_per_rank * ranks == stages,
                "{} stages are {} a rank of pp {}, not {}", stages, stages / ranks, ranks, o.stages_per_rank);
        admitted_microbatches(o.schedule, ranks, stages / ranks, o.microbatches);
        rank_of_stage_ = ranks_of_stages(o.schedule, ranks, stages / ranks);
        if (o.microbatches > 0) make_schedule(o.schedule, ranks, stages / ranks, o.microbatches);
    }
    if (o.split.empty())
        parts_ = pipeline_stages(layers, stages, o.first_stage_less_layers, o.last_stage_less_layers);
}

std::vector<int> Plan::stages_of(int rank) const {
    std::vector<int> result;
    for (int stage = 0; stage < stages(); ++stage)
        if (rank_of_stage_[static_cast<std::size_t>(stage)] == rank) result.push_back(stage);
    return result;
}

std::vector<DecoderPart> Plan::parts_of(int rank) const {
    std::vector<DecoderPart> result;
    for (const int stage : stages_of(rank)) result.push_back(parts_[static_cast<std::size_t>(stage)]);
    return result;
}

int Plan::microbatches(int needed) const {
    if (options_.lists) {
        enforce(needed <= options_.lists->microbatches,
                "the lists have {} micro-batches, and the batch needs {}; raise train.max_tokens_per_rank",
                options_.lists->microbatches, needed);
        return options_.lists->microbatches;
    }
    const int least = options_.microbatches > 0 ? options_.microbatches : ranks_;
    return admitted_microbatches(options_.schedule, ranks_, stages_per_rank(), std::max(least, needed));
}

Schedule Plan::compute(int microbatches) const {
    if (options_.lists) return compute_of(*options_.lists);
    return make_schedule(options_.schedule, ranks_, stages_per_rank(), microbatches);
}

Schedule Plan::lists(int microbatches) const {
    if (options_.lists && has_communication(*options_.lists)) return *options_.lists;
    return lower(compute(microbatches));
}

Schedule Plan::forward_lists(int microbatches) const {
    Schedule forwards{microbatches, rank_of_stage_, {}};
    for (int rank = 0; rank < ranks_; ++rank) {
        ActionList& list = forwards.ranks.emplace_back();
        for (int first = 0; first < microbatches; first += ranks_) {
            for (const int stage : stages_of(rank)) {
                for (int i = first; i < std::min(first + ranks_, microbatches); ++i)
                    list.push_back({ActionKind::forward, stage, i});
            }
        }
    }
    return lower(forwards);
}

}  // namespace tandem::pipeline
