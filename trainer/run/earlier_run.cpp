#include "trainer/run/earlier_run.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/error.h"
#include "common/json_text.h"
#include "common/text_file.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/training.h"
#include "trainer/run/data_files.h"
#include "trainer/run/resume.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kReplace = "overwrite";

// --- what points where

// Whether `path`, or what it leads to through links, is in `folder`.
bool points_into(const fs::path& path, const fs::path& folder) {
    std::error_code none;
    std::vector<fs::path> ways = {fs::absolute(path, none), fs::canonical(path, none)};
    for (fs::path& way : ways) {
        for (; !way.empty(); way = way.parent_path()) {
            if (fs::equivalent(way, folder, none)) return true;
            if (way == way.parent_path()) break;
        }
    }
    return false;
}

// A file or folder, or one of the files in it: a folder may be made of links.
bool reads_from(const std::string& path, const std::string& folder) {
    if (points_into(path, folder)) return true;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(path, none)) {
        if (entry.is_symlink(none) && points_into(entry.path(), folder)) return true;
    }
    return false;
}

void refuse_where_needed(const RunConfig& c, const config::Schema& s, const std::string& folder,
                         const std::string& fate) {
    if (!fs::exists(folder)) return;
    for (const auto& [key, path] :
         {std::pair("model.path", &c.model.path), std::pair("loss.reference", &c.loss.reference),
          std::pair("data.prompts", &c.data.prompts), std::pair("data.held_out_file", &c.data.held_out_file),
          std::pair("data.tokenizer", &c.data.tokenizer)}) {
        if (path->empty() || !reads_from(*path, folder)) continue;
        s.refuse(key, fmt::format("'{}' is in {}, which {}; choose another run.name", *path, folder, fate));
    }
}

// --- a run that goes on

// From the newest checkpoint of the finished run of this name.
bool continues_finished_run(const RunConfig& c) {
    const auto all = training_checkpoints(c.finished_folder() + "/checkpoints");
    std::error_code none;
    return !c.run.resume.empty() && !all.empty() && fs::equivalent(c.run.resume, all[0], none);
}

// What run.if_exists was when the run that goes on in its working folder began; empty: not known.
std::string if_exists_then(const RunConfig& c) {
    RunConfig then;
    config::Schema schema = schema_of(then);
    try {
        schema.read_file(c.working_folder() + "/config.toml");
    } catch (const ConfigError&) {
        return {};  // of another version, or a resume that was killed
    }
    return then.run.if_exists;
}

void keep_what_was_chosen(RunConfig& c, const config::Schema& s) {
    if (!s.key("run.if_exists").where.empty()) return;  // it is said now
    if (continues_finished_run(c)) {
        c.run.if_exists = kReplace;
    } else if (resumes_in_place(c)) {
        if (const std::string then = if_exists_then(c); !then.empty()) c.run.if_exists = then;
    }
}

bool has_whole_model(const std::string& working) {
    return fs::exists(working + "/checkpoint/config.json");
}

// --- a finished run

std::optional<ordered_json> json_in(const std::string& file) {
    try {
        ordered_json value = parse_ordered_json_text(read_text_file_if_there(file));
        return value.is_object() ? std::optional(std::move(value)) : std::nullopt;
    } catch (const Error&) {  // none, or of a run that was killed while it wrote it
        return {};
    }
}

std::optional<ordered_json> summary_in(const std::string& run) {
    return json_in(run + "/summary.json");
}

void check_same_run(const RunConfig& c, const config::Schema& s) {
    RunConfig then;
    config::Schema schema = schema_of(then);
    try {
        schema.read_file(c.finished_folder() + "/config.toml");
    } catch (const ConfigError&) {
        return;  // of another version
    }
    for (const config::Key& key : s.keys()) {
        if (may_change_at_resume(key.name)) continue;
        const ordered_json before = value_of(schema.key(key.name)), now = value_of(key);
        if (before == now) continue;
        s.refuse("run.name", fmt::format("{} is finished, and is another run: {} was {}, it is {}; choose "
                                         "another name",
                                         c.finished_folder(), key.name, before.dump(), now.dump()));
    }
    const auto digests = json_in(c.finished_folder() + "/data.json");
    if (c.data.changed == "accept" || !digests) return;
    for (const std::string& difference : data_differences(*digests, c))
        s.refuse("run.name",
                 fmt::format("{} is finished, and had other data. {}", c.finished_folder(), difference));
}

}  // namespace

Standing standing_of(const RunConfig& c, const config::Schema& s) {
    for (const std::string& directory : training_checkpoints(c.working_folder() + "/checkpoints")) {
        if (fs::exists(directory + "/manifest.json")) return Standing::unfinished;
    }
    const auto summary = summary_in(c.finished_folder());
    if (!summary) return Standing::none;
    if (summary->value("steps", std::int64_t{0}) < c.grpo.steps) return Standing::unfinished;
    check_same_run(c, s);
    return Standing::finished;
}

bool is_at_its_end(const RunConfig& c) {
    if (!continues_finished_run(c) || !summary_in(c.finished_folder())) return false;
    const ordered_json loop = read_manifest(c.run.resume).loop;
    return loop.value("phase", std::string()) == "grpo" &&
           loop.value("step", std::int64_t{0}) == c.grpo.steps;
}

void check_earlier_run(RunConfig& c, const config::Schema& s) {
    const std::string finished = c.finished_folder(), working = c.working_folder();
    refuse_where_needed(c, s, working, "is emptied before the run begins");
    keep_what_was_chosen(c, s);
    const bool refuse = c.run.if_exists == "refuse";
    if (fs::exists(finished) && refuse) {
        s.refuse("run.if_exists",
                 fmt::format(
                     "refuse: {} is a finished run. --resume goes on with it; run.if_exists=keep keeps it as "
                     "{}.1 (or .2, …) once this run has finished, overwrite removes it then; or choose "
                     "another run.name",
                     finished, finished));
    }
    if (has_whole_model(working) && refuse && !resumes_in_place(c)) {
        s.refuse(
            "run.if_exists",
            fmt::format("refuse: {}/checkpoint is the whole model of a run that failed after it. "
                        "run.if_exists=keep keeps that folder as {}.1 (or .2, …), overwrite removes it; or "
                        "choose another run.name",
                        working, working));
    }
    if (c.run.if_exists == kReplace) refuse_where_needed(c, s, finished, "goes when the run has finished");
}

RunDirectory::Earlier fate_of_working_folder(const RunConfig& c) {
    using Earlier = RunDirectory::Earlier;
    if (resumes_in_place(c)) return Earlier::keep_checkpoints;
    return has_whole_model(c.working_folder()) && c.run.if_exists != kReplace ? Earlier::keep
                                                                              : Earlier::remove;
}

RunDirectory::Finished fate_of_finished_run(const RunConfig& c) {
    return c.run.if_exists == kReplace ? RunDirectory::Finished::replace : RunDirectory::Finished::keep;
}

}  // namespace tandem::trainer
