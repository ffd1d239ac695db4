#include "trainer/run/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

namespace tandem::trainer {
namespace {

using nlohmann::ordered_json;

// Median over the syncs of a run; 0 without any.
double median(const std::vector<SyncTimes>& syncs, double SyncTimes::*field) {
    std::vector<double> values;
    for (const SyncTimes& times : syncs) values.push_back(times.*field);
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Before ("first") and after ("last") the reinforcement.
void add_held_out(ordered_json& summary, const std::string& when, const HeldOutResult& result,
                  std::int64_t samples) {
    if (result.sampled) {
        summary["reward_" + when] = result.sampled->reward;
        summary["pass_at_1_" + when] = result.sampled->pass_at_1;
        if (samples > 1) summary[fmt::format("pass_at_{}_{}", samples, when)] = result.sampled->pass_at_k;
    }
    summary["greedy_" + when] = result.greedy.reward;
    summary["greedy_pass_at_1_" + when] = result.greedy.pass_at_1;
    summary["greedy_length_" + when] = result.greedy.length_mean;
}

ordered_json mesh_json(const RunConfig& c) {
    ordered_json axes;
    for (const auto& [axis, ranks] : c.mesh_axes()) axes[axis] = ranks;
    return axes;
}

}  // namespace

nlohmann::ordered_json facts_of(const RunConfig& c) {
    return {{"name", c.run.name},           {"task", c.data.prompts.empty() ? "sum4" : "text"},
            {"version", TANDEM_VERSION},    {"seed", c.run.seed},
            {"world_size", c.world_size()}, {"mesh", mesh_json(c)}};
}

nlohmann::ordered_json summary_of(const RunConfig& c, const LoopResult& r) {
    const double sync_ms = median(r.syncs, &SyncTimes::total);
    const double light_ms = median(r.syncs, &SyncTimes::speed_of_light);
    const auto rate = [](std::int64_t tokens, double seconds) {
        return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
    };
    ordered_json summary = {
        {"name", c.run.name},
        {"task", r.task},
        {"version", TANDEM_VERSION},
        {"seed", c.run.seed},
        {"steps", r.grpo_steps},
        {"sft_steps", r.sft_steps},
        {"world_size", c.world_size()},
        {"mesh", mesh_json(c)},
        {"weight_version", r.weight_version},
        {"weights_match", r.weights_match ? ordered_json(*r.weights_match) : ordered_json()},
        {"sync_ms_median", sync_ms},
        {"sync_mode", c.sync.mode},
        {"sync_phase_ms",
         {{"prepare", median(r.syncs, &SyncTimes::prepare)},
          {"pause", median(r.syncs, &SyncTimes::pause)},
          {"gather", median(r.syncs, &SyncTimes::gather)},
          {"copy", median(r.syncs, &SyncTimes::copy)},
          {"load", median(r.syncs, &SyncTimes::load)},
          {"resume", median(r.syncs, &SyncTimes::resume)},
          {"finish", median(r.syncs, &SyncTimes::finish)},
          {"pack", median(r.syncs, &SyncTimes::pack)}}},
        {"speed_of_light_ratio", light_ms > 0 ? sync_ms / light_ms : 0.0},
        {"logprob_max_abs_diff", r.logprob_max_abs_diff},
        {"skipped_steps", r.skipped_steps},
        {"seconds", r.seconds},
        {"train_tokens_per_second", rate(r.trained_tokens, r.train_seconds)},
        {"generate_tokens_per_second", rate(r.generated_tokens, r.generate_seconds)}};
    if (r.product_rate > 0 && r.reinforce_seconds > 0) {
        summary["mfu"] = r.reinforce_flops / r.reinforce_seconds / r.product_rate;
        summary["product_gflops"] = r.product_rate * 1e-9;
    }
    add_held_out(summary, "first", r.first, c.data.held_out_samples);
    add_held_out(summary, "last", r.last, c.data.held_out_samples);
    return summary;
}

}  // namespace tandem::trainer
