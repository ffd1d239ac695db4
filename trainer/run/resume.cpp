#include "trainer/run/resume.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/model/architecture.h"
#include "trainer/checkpoint/finite.h"
#include "trainer/checkpoint/training.h"
#include "trainer/data/make_task.h"
#include "trainer/loop/update.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/data_files.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kNewest = "newest";

// These may differ from the checkpoint's: they say where and how fast, or how long, but not what is
// learned. ("model." is compared as its architecture.) All the rest must be equal.
constexpr const char* kFree[] = {"run.name",
                                 "run.output",
                                 "run.device",
                                 "run.deadline_s",
                                 "run.resume",
                                 "run.if_exists",
                                 "mesh.",
                                 "pipeline.",
                                 "model.",
                                 "engine.",
                                 "sync.",
                                 "memory.",
                                 "checkpoint.",
                                 "data.prompts",        // compared by content
                                 "data.held_out_file",  // so is this
                                 "data.changed",
                                 "data.keep_samples",
                                 "data.reward_batch",
                                 "data.reward_connections",
                                 "data.reward_timeout_s",
                                 "data.reward_deadline_s",
                                 "train.max_tokens_per_rank",
                                 "train.context_mode",
                                 "train.reshard_after_forward",
                                 "train.reshard_ranks",
                                 "train.reduce_every_micro_batch",
                                 "train.logits_chunk_rows",
                                 "train.non_finite",
                                 "grpo.steps",
                                 "grpo.schedule_steps",
                                 "grpo.evaluate_every"};

// As config.json of both means it; what a checkpoint keeps is one.
void check_same_architecture(const Manifest& manifest, const std::string& directory, const RunConfig& c,
                             const config::Schema& schema) {
    const auto task = make_task(c, schema);
    const model::Architecture now(model_config(c, schema, *task));
    const auto then = model::Architecture::from_json(manifest.model, directory + "/manifest.json: model");
    std::string text;
    for (const model::Difference& one : then.differences(now)) {
        text +=
            fmt::format("{}{}: it was {}, it is {}", text.empty() ? "" : "; ", one.key, one.ours, one.theirs);
    }
    if (!text.empty())
        schema.refuse("run.resume", fmt::format("{} is of another model: {}", directory, text));
}

std::int64_t steps_of_reinforcement(const Manifest& manifest) {
    const bool reinforces = manifest.loop.value("phase", std::string()) == "grpo";
    return reinforces ? manifest.loop.value("step", std::int64_t{0}) : 0;
}

void check_same(const Manifest& manifest, const std::string& directory, const RunConfig& c,
                const config::Schema& schema) {
    const auto refuse = [&](const std::string& what, const ordered_json& then, const ordered_json& now) {
        schema.refuse("run.resume", fmt::format("{} is of another {}: it was {}, it is {}", directory, what,
                                                then.dump(), now.dump()));
    };
    check_same_architecture(manifest, directory, c, schema);
    for (const config::Key& key : schema.keys()) {
        if (may_change_at_resume(key.name)) continue;
        const ordered_json now = value_of(key);
        const ordered_json initial = std::visit([](const auto& v) -> ordered_json { return v; }, key.initial);
        const ordered_json then = manifest.config.value(key.name, initial);
        if (then != now) refuse("algorithm: " + key.name, then, now);
    }
    const std::int64_t done = steps_of_reinforcement(manifest);
    if (done > c.grpo.steps) {
        schema.refuse("run.resume", fmt::format("{} is at step {} of reinforcement already; grpo.steps is {}",
                                                directory, done, c.grpo.steps));
    }
}

// The data by content.
void check_data(const Manifest& manifest, const std::string& directory, const RunConfig& c,
                const config::Schema& schema) {
    const auto had = [&](const char* key) { return manifest.config.value(key, std::string()); };
    if (had("data.prompts").empty() != c.data.prompts.empty()) {
        schema.refuse("run.resume", fmt::format("{} is of another task: data.prompts was '{}', it is '{}'",
                                                directory, had("data.prompts"), c.data.prompts));
    }
    if (c.data.prompts.empty()) return;
    if (manifest.data.is_null()) {
        log_warn("{} has no digest of its data: whether '{}' holds what '{}' held cannot be told", directory,
                 c.data.prompts, had("data.prompts"));
        return;
    }
    std::string all;
    for (const std::string& difference : data_differences(manifest.data, c))
        all += (all.empty() ? "" : "; ") + difference;
    if (all.empty()) return;
    if (c.data.changed == "refuse") {
        schema.refuse("run.resume",
                      fmt::format("{} was trained on other data. {}. data.changed=accept goes on "
                                  "with what is there now",
                                  directory, all));
    }
    log_warn("goes on with other data than {} was trained on. {}", directory, all);
}

// A learning rate that is not what it would have been.
void say_schedule(const Manifest& manifest, const RunConfig& c) {
    RunConfig then = c;
    const auto value = [&](const char* key) { return manifest.config.value(key, std::int64_t{0}); };
    then.grpo.steps = value("grpo.steps");
    then.grpo.schedule_steps = value("grpo.schedule_steps");
    const Schedule before = grpo_schedule(then), now = grpo_schedule(c);
    const std::int64_t done = steps_of_reinforcement(manifest);
    if (before.total_steps == 0 || now.total_steps == 0 || before.total_steps == now.total_steps) return;
    const auto rate = [&](const Schedule& schedule, std::int64_t step) {
        return fmt::format("{:.3g}", learning_rate(schedule, c.train.lr, step));
    };
    log_warn(
        "the learning rate falls over {} steps now, not over {} (grpo.steps, grpo.schedule_steps): step {} "
        "has {}, by "
        "the schedule of {} steps it would have {}{}; grpo.schedule_steps={} keeps that one",
        now.total_steps, before.total_steps, done + 1, rate(now, done), before.total_steps,
        rate(before, done), done > 0 ? fmt::format(", and step {} had {}", done, rate(before, done - 1)) : "",
        before.total_steps);
}

struct Choice {
    std::string directory;   // the first that is whole and finite; empty: none is
    std::string not_finite;  // the first that was passed over because it is not, and why; empty: none was
};

// Those that are passed over are warned about.
Choice first_good(const std::vector<std::string>& directories, const RunConfig& c) {
    Choice choice;
    for (const std::string& directory : directories) {
        try {
            const Manifest manifest = read_manifest(directory);
            verify(manifest, directory);
            const std::string found = became_non_finite(manifest, directory, c.model.path);
            if (found.empty()) {
                choice.directory = directory;
                return choice;
            }
            log_warn("{} is passed over: it holds infinities or NaN that training made: {}", directory,
                     found);
            if (choice.not_finite.empty()) choice.not_finite = directory + ": " + found;
        } catch (const ConfigError& error) {
            log_warn("{} is not whole and is passed over: {}", directory, error.what());
        }
    }
    return choice;
}

// `where` as a user reads it: folders that were searched. `none`: what to say where there was nothing to be found.
std::string found_or_refuse(const Choice& choice, const config::Schema& schema, const std::string& where,
                            const std::string& none) {
    if (choice.directory.empty() && !choice.not_finite.empty()) {
        schema.refuse(
            "run.resume",
            fmt::format("no finite checkpoint in {}: training made infinities or NaN in {}; start the "
                        "run again under another name",
                        where, choice.not_finite));
    }
    if (choice.directory.empty()) schema.refuse("run.resume", none);
    return choice.directory;
}

std::string find(const RunConfig& c, const config::Schema& schema) {
    const std::string& where = c.run.resume;
    if (where == kNewest) {
        std::vector<std::string> all = training_checkpoints(c.working_folder() + "/checkpoints");
        const auto finished = training_checkpoints(c.finished_folder() + "/checkpoints");
        all.insert(all.end(), finished.begin(), finished.end());
        const std::string folders =
            fmt::format("{}/checkpoints or {}/checkpoints", c.working_folder(), c.finished_folder());
        return found_or_refuse(first_good(all, c), schema, folders,
                               fmt::format("no whole checkpoint in {}; start the run without it, and with "
                                           "checkpoint.every",
                                           folders));
    }
    if (fs::exists(where + "/manifest.json")) {
        const Manifest manifest = read_manifest(where);
        verify(manifest, where);
        const std::string found = became_non_finite(manifest, where, c.model.path);
        if (!found.empty()) {
            schema.refuse("run.resume",
                          fmt::format("'{}' holds infinities or NaN that training made: {}; give "
                                      "an earlier checkpoint, or the run's folder for its newest "
                                      "finite one",
                                      where, found));
        }
        return where;
    }
    return found_or_refuse(
        first_good(training_checkpoints(where + "/checkpoints"), c), schema, where + "/checkpoints",
        fmt::format("'{}' is neither a checkpoint nor a run with a whole one: it has no manifest.json and no "
                    "checkpoints/step-N",
                    where));
}

void check_nothing_is_lost(const RunConfig& c, const config::Schema& schema) {
    const std::string folder = c.working_folder();
    for (const std::string& directory : training_checkpoints(folder + "/checkpoints")) {
        if (!fs::exists(directory + "/manifest.json")) continue;
        schema.refuse(
            "run.name",
            fmt::format("{} holds {} of a run of this name that did not end: --resume continues it; "
                        "to begin again, remove that folder or choose another name",
                        folder, fs::path(directory).filename().string()));
    }
}

}  // namespace

bool may_change_at_resume(const std::string& key) {
    return std::any_of(std::begin(kFree), std::end(kFree), [&](const std::string& free) {
        return free.ends_with('.') ? key.starts_with(free) : key == free;
    });
}

ordered_json value_of(const config::Key& key) {
    return std::visit([](const auto* field) -> ordered_json { return *field; }, key.field);
}

ordered_json config_json(const config::Schema& schema) {
    auto json = ordered_json::object();
    for (const config::Key& key : schema.keys()) json[key.name] = value_of(key);
    return json;
}

void resolve_resume(RunConfig& c, const config::Schema& schema) {
    if (c.run.resume.empty()) return check_nothing_is_lost(c, schema);
    const bool newest = c.run.resume == kNewest;
    const std::string directory = find(c, schema);
    const Manifest manifest = read_manifest(directory);
    check_same(manifest, directory, c, schema);
    check_data(manifest, directory, c, schema);
    say_schedule(manifest, c);
    c.run.resume = fs::canonical(directory).string();
    if (!newest && !resumes_in_place(c)) check_nothing_is_lost(c, schema);
}

bool resumes_in_place(const RunConfig& c) {
    std::error_code none;
    const std::string folder = fs::canonical(c.working_folder(), none).string();
    return !c.run.resume.empty() && !none && c.run.resume.starts_with(folder + "/");
}

}  // namespace tandem::trainer
