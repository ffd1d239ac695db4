#include "trainer/memory/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trainer/config/policy_options.h"

namespace tandem::trainer::memory {
namespace {

using nlohmann::ordered_json;

// In the order of a run; other phases stand behind.
const std::vector<std::string> kPhases = {"connect", "logprobs", "forward_backward", "optimizer", "sync"};
const std::vector<std::string> kTags = {"shards",    "gradients",           "optimizer",   "reference",
                                        "unsharded", "unsharded_gradients", "activations", "logits"};

constexpr const char* kCheckpointing[] = {"none", "selective", "full"};
constexpr const char* kOffload[] = {"none", "optimizer", "parameters", "all"};

std::string size_text(std::uint64_t bytes) {
    const auto value = static_cast<double>(bytes);
    if (bytes >= std::uint64_t{10} << 30) return fmt::format("{:.1f} GiB", value / (1 << 30));
    if (bytes >= std::uint64_t{1} << 20) return fmt::format("{:.1f} MiB", value / (1 << 20));
    return fmt::format("{:.1f} KiB", value / 1024);
}

std::vector<std::string> tags_of(const Prediction& prediction) {
    std::set<std::string> all;
    for (const auto& [phase, peak] : prediction.phases) {
        for (const auto& [tag, bytes] : peak.by_tag) all.insert(tag);
    }
    std::vector<std::string> tags;
    for (const std::string& tag : kTags) {
        if (all.erase(tag) > 0) tags.push_back(tag);
    }
    tags.insert(tags.end(), all.begin(), all.end());
    return tags;
}

std::string passes_text(const Workload& work) {
    std::string text;
    for (const PassShape& pass : work.train) {
        text += fmt::format("{}{} tokens ({} targets)", text.empty() ? "" : ", ", pass.rows, pass.targets);
    }
    return text.empty() ? "no training" : text;
}

std::string line_of(std::string name, const std::vector<std::string>& cells) {
    std::string line = fmt::format("{:<22}", std::move(name));
    for (const std::string& cell : cells) line += fmt::format("{:>18}", cell);
    return line + "\n";
}

std::string with_star(std::uint64_t bytes, bool chosen) {
    return size_text(bytes) + (chosen ? "*" : "");
}

std::string tensor_choices_text(const Report& report) {
    std::string text = "\nPeak with other choices of sequence_parallel (down) and loss_parallel (across):\n";
    text += line_of("", {"true", "false"});
    for (const bool sequence_parallel : {true, false}) {
        std::vector<std::string> cells;
        for (const Report::TensorChoice& choice : report.tensor_choices) {
            if (choice.sequence_parallel == sequence_parallel)
                cells.push_back(with_star(choice.peak_bytes, choice.chosen));
        }
        text += line_of(sequence_parallel ? "true" : "false", cells);
    }
    return text;
}

std::vector<Report::TensorChoice> tensor_choices_of(const RunConfig& config, const model::ModelConfig& model,
                                                    const Report& report) {
    std::vector<Report::TensorChoice> choices;
    for (const bool sequence_parallel : {true, false}) {
        for (const bool loss_parallel : {true, false}) {
            PolicyOptions options = policy_options(config);
            const bool chosen =
                sequence_parallel == options.sequence_parallel && loss_parallel == options.loss_parallel;
            options.sequence_parallel = sequence_parallel;
            options.loss_parallel = loss_parallel;
            const Prediction there = predict(model, options, report.rank, report.work);
            choices.push_back({sequence_parallel, loss_parallel, there.peak().bytes, there.phase, chosen});
        }
    }
    return choices;
}

}  // namespace

Report report_of(const RunConfig& config, const config::Schema& schema, const Task& task,
                 const std::map<std::string, std::int64_t>& sync) {
    const model::ModelConfig model = model_config(config, schema, task);
    const PolicyOptions options = policy_options(config);
    Report report;
    report.rank = rank_shape(config);
    report.work = workload_of(config, task, options);
    report.work.sync = sync;
    report.prediction = predict(model, options, report.rank, report.work);
    for (const char* checkpointing : kCheckpointing) {
        for (const char* offload : kOffload) {
            RunConfig other = config;
            other.memory.activation_checkpointing = checkpointing;
            other.memory.offload = offload;
            const Prediction there = predict(model, policy_options(other), report.rank, report.work);
            const bool chosen =
                checkpointing == config.memory.activation_checkpointing && offload == config.memory.offload;
            report.choices.push_back({checkpointing, offload, there.peak().bytes, there.phase, chosen});
        }
    }
    if (report.rank.tp > 1) report.tensor_choices = tensor_choices_of(config, model, report);
    return report;
}

std::string to_text(const RunConfig& c, const Report& report) {
    std::string text = fmt::format(
        "Peak memory of rank 0 of {} ({}; parameters {}over {}), {}, on paper.\n"
        "Largest micro-batches of a rank: {}; {} in a batch.\n\n",
        c.world_size(), c.mesh_text(),
        report.rank.tp > 1 ? fmt::format("cut in {} by tp, then ", report.rank.tp) : "", report.rank.shards,
        c.train.compute_dtype, passes_text(report.work), report.work.micro_batches);
    std::vector<std::string> phases;
    for (const std::string& phase : kPhases) {
        if (report.prediction.phases.contains(phase)) phases.push_back(phase);
    }
    text += line_of("at the peak of", phases);
    const auto row = [&](const std::string& name, const auto& bytes_of) {
        std::vector<std::string> cells;
        for (const std::string& phase : phases) cells.push_back(bytes_of(report.prediction.phases.at(phase)));
        text += line_of(name, cells);
    };
    for (const std::string& tag : tags_of(report.prediction)) {
        row(tag, [&](const MemoryPeak& peak) {
            const auto found = peak.by_tag.find(tag);
            return found == peak.by_tag.end() ? "-" : size_text(found->second);
        });
    }
    row("sum", [](const MemoryPeak& peak) { return size_text(peak.bytes); });
    text += fmt::format("\nPeak: {} in {}.\n\n", size_text(report.prediction.peak().bytes),
                        report.prediction.phase);
    text += "Peak with other choices under [memory] (*: this run's):\n";
    std::vector<std::string> heads;
    for (const char* offload : kOffload) heads.emplace_back(offload);
    text += line_of("checkpointing, offload", heads);
    for (const char* checkpointing : kCheckpointing) {
        std::vector<std::string> cells;
        for (const Report::Choice& choice : report.choices) {
            if (choice.checkpointing == checkpointing)
                cells.push_back(with_star(choice.peak_bytes, choice.chosen));
        }
        text += line_of(checkpointing, cells);
    }
    return report.tensor_choices.empty() ? text : text + tensor_choices_text(report);
}

ordered_json to_json(const Prediction& prediction) {
    ordered_json phases = ordered_json::object();
    for (const auto& [phase, peak] : prediction.phases)
        phases[phase] = {{"bytes", peak.bytes}, {"by_tag", peak.by_tag}};
    return {{"peak_bytes", prediction.peak().bytes},
            {"phase", prediction.phase},
            {"by_tag", prediction.peak().by_tag},
            {"phases", std::move(phases)}};
}

ordered_json to_json(const Report& report) {
    ordered_json result = to_json(report.prediction);
    ordered_json passes = ordered_json::array();
    for (const PassShape& pass : report.work.train)
        passes.push_back({{"tokens", pass.rows}, {"targets", pass.targets}});
    result["micro_batches"] = report.work.micro_batches;
    result["largest_micro_batches"] = std::move(passes);
    ordered_json choices = ordered_json::array();
    for (const Report::Choice& choice : report.choices) {
        choices.push_back({{"activation_checkpointing", choice.checkpointing},
                           {"offload", choice.offload},
                           {"peak_bytes", choice.peak_bytes},
                           {"phase", choice.phase},
                           {"this_run", choice.chosen}});
    }
    result["choices"] = std::move(choices);
    if (report.rank.tp == 1) return result;
    result["tp"] = report.rank.tp;
    ordered_json tensor_choices = ordered_json::array();
    for (const Report::TensorChoice& choice : report.tensor_choices) {
        tensor_choices.push_back({{"sequence_parallel", choice.sequence_parallel},
                                  {"loss_parallel", choice.loss_parallel},
                                  {"peak_bytes", choice.peak_bytes},
                                  {"phase", choice.phase},
                                  {"this_run", choice.chosen}});
    }
    result["tensor_parallel_choices"] = std::move(tensor_choices);
    return result;
}

}  // namespace tandem::trainer::memory
