#include "trainer/config/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/sharding/tensor_cut.h"
#include "common/text_file.h"
#include "trainer/pipeline/csv.h"

namespace tandem::trainer {
namespace {

using Round = pipeline::Options::Round;

// The key that a refusal of the plan is about.
const char* key_of_stages(const RunConfig& c) {
    if (!c.pipeline.split.empty()) return "pipeline.split";
    if (c.pipeline.layers_per_stage > 0) return "pipeline.layers_per_stage";
    if (!c.pipeline.csv.empty()) return "pipeline.csv";
    return c.pipeline.stages_per_rank > 0 ? "pipeline.stages_per_rank" : "mesh.pp";
}

// Of the products that a token takes part in, the share of each rank.
std::vector<double> work_of_ranks(const pipeline::Plan& plan, const model::ModelConfig& model) {
    std::vector<double> work(static_cast<std::size_t>(plan.ranks()));
    double all = 0;
    const std::vector<model::ParameterSpec> specs = model::parameter_specs(model);
    for (int rank = 0; rank < plan.ranks(); ++rank) {
        double& mine = work[static_cast<std::size_t>(rank)];
        for (const DecoderPart& part : plan.parts_of(rank)) {
            for (const model::ParameterSpec& spec : specs) {
                const bool multiplies = spec.shape.size() == 2 && spec.role != model::Role::embedding;
                if (multiplies && part.holds(spec, model.tie_word_embeddings))
                    mine += static_cast<double>(numel(spec.shape));
            }
            if (part.heads && model.tie_word_embeddings)
                mine += static_cast<double>(model.vocab_size * model.hidden_size);
        }
        all += mine;
    }
    for (double& one : work) one /= all;
    return work;
}

double largest(const std::vector<double>& shares) {
    return *std::max_element(shares.begin(), shares.end());
}

std::string percents(const std::vector<double>& shares) {
    std::string text;
    for (const double share : shares) text += fmt::format("{}{:.0f}%", text.empty() ? "" : ", ", 100 * share);
    return text;
}

}  // namespace

pipeline::Options pipeline_options(const RunConfig& c) {
    pipeline::Options o;
    o.schedule = c.pipeline.schedule;
    if (!c.pipeline.csv.empty()) o.lists = pipeline::read_csv(read_text_file(c.pipeline.csv), c.pipeline.csv);
    o.stages_per_rank = static_cast<int>(c.pipeline.stages_per_rank);
    o.layers_per_stage = static_cast<int>(c.pipeline.layers_per_stage);
    o.round = c.pipeline.round_to_pp_multiple == "up"     ? Round::up
              : c.pipeline.round_to_pp_multiple == "down" ? Round::down
                                                          : Round::refuse;
    o.split = c.pipeline.split;
    o.first_stage_less_layers = static_cast<int>(c.pipeline.first_stage_less_layers);
    o.last_stage_less_layers = static_cast<int>(c.pipeline.last_stage_less_layers);
    o.microbatches = static_cast<int>(c.pipeline.microbatches);
    return o;
}

std::optional<pipeline::Plan> pipeline_plan(const RunConfig& c, const model::ModelConfig& model) {
    if (c.mesh.pp == 1) return {};
    return pipeline::Plan(pipeline_options(c), static_cast<int>(c.mesh.pp),
                          static_cast<int>(model.num_hidden_layers));
}

void check_pipeline(const RunConfig& c, const config::Schema& s, const model::ModelConfig& model) {
    const char* key = "pipeline.schedule";
    try {
        pipeline::schedule_name(c.pipeline.schedule);
        if (c.mesh.pp == 1) return;
        RunConfig any_number = c;
        any_number.pipeline.microbatches = 0;
        key = key_of_stages(c);
        const auto plan = pipeline_plan(any_number, model);
        const auto& ranks = plan->rank_of_stage();
        if (model.tie_word_embeddings && ranks.front() != ranks.back() && ranks.front() != 0 &&
            ranks.back() != 0)
            throw BadInput(
                "embedding and head of this model are one table: the first or the last stage must "
                "be on rank 0");
        key = "pipeline.microbatches";
        pipeline_plan(c, model);
    } catch (const BadInput& error) {
        s.refuse(key, error.what());
    }
}

std::string uneven_stages(const RunConfig& c, const model::ModelConfig& model) {
    constexpr double kUneven = 1.25, kBetter = 0.9;
    const auto& p = c.pipeline;
    if (c.mesh.pp == 1 || !p.split.empty() || p.layers_per_stage > 0) return "";
    const std::vector<double> now = work_of_ranks(*pipeline_plan(c, model), model);
    if (largest(now) * static_cast<double>(now.size()) < kUneven) return "";
    std::vector<double> best = now;
    RunConfig other = c;
    std::int64_t less = 0;
    for (std::int64_t weight = 0; weight <= model.num_hidden_layers; ++weight) {
        other.pipeline.last_stage_less_layers = weight;
        try {
            const std::vector<double> shares = work_of_ranks(*pipeline_plan(other, model), model);
            if (largest(shares) >= largest(best)) continue;
            best = shares;
            less = weight;
        } catch (const BadInput&) {  // more than a stage has
        }
    }
    if (largest(best) > kBetter * largest(now)) return "";
    return fmt::format(
        "the stages are uneven: the ranks have {} of the work; pipeline.last_stage_less_layers={} would make "
        "it {}",
        percents(now), less, percents(best));
}

std::int64_t largest_shard(const RunConfig& c, const model::ModelConfig& model) {
    const auto tp = static_cast<int>(c.mesh.tp), shards = static_cast<int>(c.shard_ranks());
    const auto plan = pipeline_plan(c, model);
    if (!plan) return tandem::largest_shard(model, tp, shards, {DecoderPart::whole(model)});
    std::int64_t most = 0;
    for (int rank = 0; rank < plan->ranks(); ++rank)
        most = std::max(most, tandem::largest_shard(model, tp, shards, plan->parts_of(rank)));
    return most;
}

}  // namespace tandem::trainer
