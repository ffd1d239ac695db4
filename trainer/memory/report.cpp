#include "trainer/memory/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "common/mesh/parallel_dims.h"
#include "common/thread.h"
#include "common/wrap.h"

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
    for (const PassShape& pass : work.largest) {
        text += fmt::format("{}{} tokens ({} targets)", text.empty() ? "" : ", ", pass.rows, pass.targets);
    }
    return text.empty() ? "no training" : text;
}

// A row of a table; `heads` are those of its columns, which are narrower where there are many of them.
std::string line_of(const std::string& name, const std::vector<std::string>& cells,
                    const std::vector<std::string>& heads) {
    std::string line = fmt::format("{:<22}", name);
    for (std::size_t i = 0; i < cells.size(); ++i)
        line += fmt::format("{:>{}}", cells[i],
                            heads.size() > 4 ? std::max<std::size_t>(13, heads[i].size() + 2) : 18);
    return line + "\n";
}

std::string with_star(std::uint64_t bytes, bool chosen) {
    return size_text(bytes) + (chosen ? "*" : "");
}

std::string tensor_choices_text(const Report& report) {
    std::string text = "\nPeak with other choices of sequence_parallel (down) and loss_parallel (across):\n";
    const std::vector<std::string> heads{"true", "false"};
    text += line_of("", heads, heads);
    for (const bool sequence_parallel : {true, false}) {
        std::vector<std::string> cells;
        for (const Report::TensorChoice& choice : report.tensor_choices) {
            if (choice.sequence_parallel == sequence_parallel)
                cells.push_back(with_star(choice.peak_bytes, choice.chosen));
        }
        text += line_of(sequence_parallel ? "true" : "false", cells, heads);
    }
    return text;
}

const Report::Stage& largest_of(const std::vector<Report::Stage>& stages) {
    return *std::max_element(stages.begin(), stages.end(),
                             [](const Report::Stage& a, const Report::Stage& b) {
                                 return a.prediction.peak().bytes < b.prediction.peak().bytes;
                             });
}

// The ranks that are predicted, with other options too.
class Ranks {
  public:
    Ranks(const RunConfig& config, model::ModelConfig model, const Task& task, SyncMemory sync)
        : config_(config),
          model_(std::move(model)),
          work_(workload_of(config, task, policy_options(config), model_)),
          sync_(std::move(sync)) {}

    const Workload& work() const { return work_; }

    // The first rank of a stage; with the passes of the rank of cp that has the most targets.
    Report::Stage stage(int number, const PolicyOptions& options) const {
        const int ranks = static_cast<int>(config_.world_size());
        const int first = ranks / static_cast<int>(config_.mesh.pp) * number;
        const ParallelDims dims(config_.degrees(), ranks,
                                first + work_.cp_rank * static_cast<int>(config_.mesh.tp));
        Work work = work_.work;
        work.sync = first == 0 ? sync_.first : sync_.other;
        return {first, predict(model_, options, dims.train_mesh().slice(policy_axes(config_)), work)};
    }
    // A rank of each stage with each of the options. They do not know of each other: as many at a time as there are cores.
    std::vector<std::vector<Report::Stage>> stages(const std::vector<PolicyOptions>& choices) const {
        const auto stages = static_cast<std::size_t>(config_.mesh.pp);
        std::vector<std::vector<Report::Stage>> all(choices.size(), std::vector<Report::Stage>(stages));
        std::atomic<std::size_t> next = 0;
        const auto work = [&] {
            for (std::size_t i = next++; i < choices.size() * stages; i = next++)
                all[i / stages][i % stages] = stage(static_cast<int>(i % stages), choices[i / stages]);
        };
        std::vector<std::future<void>> others;
        for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i)
            others.push_back(start_call("that predicts memory", work));
        work();
        for (std::future<void>& other : others) other.get();
        return all;
    }

  private:
    const RunConfig& config_;
    model::ModelConfig model_;
    Workload work_;
    SyncMemory sync_;
};

// The run's own options, and after them every choice under [memory], and every one of [tensor_parallel] on a mesh with tp.
std::vector<PolicyOptions> options_of(const RunConfig& config) {
    std::vector<PolicyOptions> all{policy_options(config)};
    for (const char* checkpointing : kCheckpointing) {
        for (const char* offload : kOffload) {
            RunConfig other = config;
            other.memory.activation_checkpointing = checkpointing;
            other.memory.offload = offload;
            all.push_back(policy_options(other));
        }
    }
    if (config.mesh.tp == 1) return all;
    for (const bool sequence_parallel : {true, false}) {
        for (const bool loss_parallel : {true, false}) {
            all.push_back(all.front());
            all.back().sequence_parallel = sequence_parallel;
            all.back().loss_parallel = loss_parallel;
        }
    }
    return all;
}

// Takes the predictions of options_of() in their order.
void add_choices(Report& report, const RunConfig& config,
                 const std::vector<std::vector<Report::Stage>>& all) {
    auto next = all.begin() + 1;
    for (const char* checkpointing : kCheckpointing) {
        for (const char* offload : kOffload) {
            const Prediction& there = largest_of(*next++).prediction;
            const bool chosen =
                checkpointing == config.memory.activation_checkpointing && offload == config.memory.offload;
            report.choices.push_back({checkpointing, offload, there.peak().bytes, there.phase, chosen});
        }
    }
    const auto& tensor = config.tensor_parallel;
    for (const bool sequence_parallel : {true, false}) {
        for (const bool loss_parallel : {true, false}) {
            if (next == all.end()) return;
            const Prediction& there = largest_of(*next++).prediction;
            const bool chosen =
                sequence_parallel == tensor.sequence_parallel && loss_parallel == tensor.loss_parallel;
            report.tensor_choices.push_back(
                {sequence_parallel, loss_parallel, there.peak().bytes, there.phase, chosen});
        }
    }
}

std::string stages_text(const Report& report) {
    const std::vector<std::string> heads{"peak", "in"};
    std::string text = "\nPeak of a rank of each stage:\n" + line_of("rank", heads, heads);
    for (const Report::Stage& stage : report.stages) {
        const Prediction& there = stage.prediction;
        text += line_of(std::to_string(stage.rank), {size_text(there.peak().bytes), there.phase}, heads);
    }
    return text;
}

}  // namespace

const Report::Stage& Report::largest() const {
    return largest_of(stages);
}

Report report_of(const RunConfig& config, const config::Schema& schema, const Task& task,
                 const SyncMemory& sync) {
    const Ranks ranks(config, model_config(config, schema, task), task, sync);
    const auto all = ranks.stages(options_of(config));
    Report report{static_cast<int>(config.mesh.tp), ranks.work(), all.front(), {}, {}};
    add_choices(report, config, all);
    return report;
}

Prediction prediction_of(const RunConfig& config, const model::ModelConfig& model, const Task& task,
                         const std::map<std::string, std::int64_t>& sync) {
    return Ranks(config, model, task, {sync, {}}).stage(0, policy_options(config)).prediction;
}

std::string to_text(const RunConfig& c, const Report& report) {
    const Prediction& prediction = report.largest().prediction;
    const std::string what = fmt::format(
        "Peak memory of rank {} of {} ({}; parameters {}over {}), {}, as counted without running it.\n"
        "Largest micro-batches of a rank: {}; {} in a batch.",
        report.largest().rank, c.world_size(), c.mesh_text(),
        c.mesh.tp > 1 ? fmt::format("cut in {} by tp, then ", c.mesh.tp) : "", c.shard_ranks(),
        c.train.compute_dtype, passes_text(report.work), report.work.micro_batches);
    std::string text = wrapped(what, kTerminalColumns) + "\n\n";
    std::vector<std::string> phases;
    for (const std::string& phase : kPhases) {
        if (prediction.phases.contains(phase)) phases.push_back(phase);
    }
    text += line_of("at the peak of", phases, phases);
    const auto row = [&](const std::string& name, const auto& bytes_of) {
        std::vector<std::string> cells;
        for (const std::string& phase : phases) cells.push_back(bytes_of(prediction.phases.at(phase)));
        text += line_of(name, cells, phases);
    };
    for (const std::string& tag : tags_of(prediction)) {
        row(tag, [&](const MemoryPeak& peak) {
            const auto found = peak.by_tag.find(tag);
            return found == peak.by_tag.end() ? "-" : size_text(found->second);
        });
    }
    row("sum", [](const MemoryPeak& peak) { return size_text(peak.bytes); });
    text += fmt::format("\nPeak: {} in {}.\n\n", size_text(prediction.peak().bytes), prediction.phase);
    text += "Peak with other choices under [memory] (*: this run's):\n";
    std::vector<std::string> heads;
    for (const char* offload : kOffload) heads.emplace_back(offload);
    text += line_of("checkpointing, offload", heads, heads);
    for (const char* checkpointing : kCheckpointing) {
        std::vector<std::string> cells;
        for (const Report::Choice& choice : report.choices) {
            if (choice.checkpointing == checkpointing)
                cells.push_back(with_star(choice.peak_bytes, choice.chosen));
        }
        text += line_of(checkpointing, cells, heads);
    }
    if (!report.tensor_choices.empty()) text += tensor_choices_text(report);
    if (report.stages.size() > 1) text += stages_text(report);
    return text;
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
    ordered_json result = to_json(report.largest().prediction);
    ordered_json passes = ordered_json::array();
    for (const PassShape& pass : report.work.largest)
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
    if (report.stages.size() > 1) {
        result["rank"] = report.largest().rank;
        for (const auto& [rank, prediction] : report.stages) {
            result["stages"].push_back(to_json(prediction));
            result["stages"].back()["rank"] = rank;
        }
    }
    if (report.tensor_choices.empty()) return result;
    result["tp"] = report.tp;
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
