#include "trainer/run/resume.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/model/architecture.h"
#include "trainer/checkpoint/training.h"
#include "trainer/data/make_task.h"

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
                                 "mesh.",
                                 "model.",
                                 "engine.",
                                 "sync.",
                                 "memory.",
                                 "checkpoint.",
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
                                 "grpo.steps",
                                 "grpo.evaluate_every"};

bool is_free(const std::string& key) {
    return std::any_of(std::begin(kFree), std::end(kFree), [&](const std::string& free) {
        return free.ends_with('.') ? key.starts_with(free) : key == free;
    });
}

ordered_json value_of(const config::Key& key) {
    return std::visit([](const auto* field) -> ordered_json { return *field; }, key.field);
}

std::string working_folder(const RunConfig& c) {
    return c.run.output + "/" + c.run.name + ".partial";
}

std::string finished_folder(const RunConfig& c) {
    return c.run.output + "/" + c.run.name;
}

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

void check_same(const Manifest& manifest, const std::string& directory, const RunConfig& c,
                const config::Schema& schema) {
    const auto refuse = [&](const std::string& what, const ordered_json& then, const ordered_json& now) {
        schema.refuse("run.resume", fmt::format("{} is of another {}: it was {}, it is {}", directory, what,
                                                then.dump(), now.dump()));
    };
    check_same_architecture(manifest, directory, c, schema);
    for (const config::Key& key : schema.keys()) {
        if (is_free(key.name)) continue;
        const ordered_json now = value_of(key);
        const ordered_json initial = std::visit([](const auto& v) -> ordered_json { return v; }, key.initial);
        const ordered_json then = manifest.config.value(key.name, initial);
        if (then != now) refuse("algorithm: " + key.name, then, now);
    }
    const auto done = manifest.loop.value("phase", std::string()) == "grpo"
                          ? manifest.loop.value("step", std::int64_t{0})
                          : 0;
    if (done > c.grpo.steps) {
        schema.refuse("run.resume", fmt::format("{} is at step {} of reinforcement already; grpo.steps is {}",
                                                directory, done, c.grpo.steps));
    }
}

// The first whole one; the others are warned about.
std::string first_whole(const std::vector<std::string>& directories) {
    for (const std::string& directory : directories) {
        try {
            verify(read_manifest(directory), directory);
            return directory;
        } catch (const ConfigError& error) {
            log_warn("{} is not whole and is passed over: {}", directory, error.what());
        }
    }
    return "";
}

std::string find(const RunConfig& c, const config::Schema& schema) {
    const std::string& where = c.run.resume;
    if (where == kNewest) {
        std::vector<std::string> all = training_checkpoints(working_folder(c) + "/checkpoints");
        const auto finished = training_checkpoints(finished_folder(c) + "/checkpoints");
        all.insert(all.end(), finished.begin(), finished.end());
        const std::string found = first_whole(all);
        if (found.empty()) {
            schema.refuse(
                "run.resume",
                fmt::format("no whole checkpoint in {}/checkpoints or {}/checkpoints; start the run "
                            "without it, and with checkpoint.every",
                            working_folder(c), finished_folder(c)));
        }
        return found;
    }
    if (fs::exists(where + "/manifest.json")) {
        verify(read_manifest(where), where);
        return where;
    }
    const std::string found = first_whole(training_checkpoints(where + "/checkpoints"));
    if (found.empty()) {
        schema.refuse("run.resume",
                      fmt::format("'{}' is neither a checkpoint nor a run with a whole one: it has "
                                  "no manifest.json and no checkpoints/step-N",
                                  where));
    }
    return found;
}

void check_nothing_is_lost(const RunConfig& c, const config::Schema& schema) {
    const std::string folder = working_folder(c);
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

ordered_json config_json(const config::Schema& schema) {
    auto json = ordered_json::object();
    for (const config::Key& key : schema.keys()) json[key.name] = value_of(key);
    return json;
}

void resolve_resume(RunConfig& c, const config::Schema& schema) {
    if (c.run.resume.empty()) return check_nothing_is_lost(c, schema);
    const bool newest = c.run.resume == kNewest;
    const std::string directory = find(c, schema);
    check_same(read_manifest(directory), directory, c, schema);
    c.run.resume = fs::canonical(directory).string();
    if (!newest && !resumes_in_place(c)) check_nothing_is_lost(c, schema);
}

bool resumes_in_place(const RunConfig& c) {
    std::error_code none;
    const std::string folder = fs::canonical(working_folder(c), none).string();
    return !c.run.resume.empty() && !none && c.run.resume.starts_with(folder + "/");
}

}  // namespace tandem::trainer
