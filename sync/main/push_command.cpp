#include "sync/main/commands.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/safetensors.h"
#include "common/number_between.h"
#include "common/progress.h"
#include "engine_adapter/hf_directory/shared_directory.h"
#include "sync/main/push_setup.h"
#include "sync/push/directory_source.h"
#include "sync/session/finite.h"

namespace tandem::sync {
namespace {

constexpr std::int64_t kNewestVersion = std::int64_t{1} << 53;  // that every JSON reader knows exactly

// A pattern that no tensor of the model has is a slip: what it was to push would be left as it is.
std::function<bool(const std::string&)> matcher(const std::string& model,
                                                const std::vector<std::string>& patterns) {
    if (patterns.empty()) return {};
    const std::vector<std::string> names = model::Safetensors::open(model).names();
    for (const std::string& pattern : patterns) {
        if (std::ranges::any_of(names, [&](const std::string& name) { return matches(pattern, name); }))
            continue;
        throw ConfigError("command line", "--only",
                          fmt::format("'{}' matches no tensor of {}, which has {}", pattern, model,
                                      names.empty() ? "none" : "'" + names.front() + "' and others"));
    }
    return any_of(patterns);
}

std::vector<ServerOutcome> with_progress(const PushOptions& options, const Connect& connect) {
    if (isatty(STDERR_FILENO) == 0 || options.dry_run) return push_directory(options, connect);
    constexpr std::size_t kMebibyte = std::size_t{1} << 20;
    const auto total =
        static_cast<std::int64_t>(options.weights->bytes() * options.servers.size() / kMebibyte);
    Progress progress("push", total);
    return push_directory(options, connect, [&](std::size_t bytes) {
        // Servers may hold the weights in another dtype than the files.
        progress.update(std::min(total, static_cast<std::int64_t>(bytes / kMebibyte)), "MiB");
    });
}

}  // namespace

void add_options(CLI::App& app, PushArguments& push) {
    CLI::Option* model =
        app.add_option("--model", push.options.model, "Hugging Face directory whose weights are pushed");
    CLI::Option* watch =
        app.add_option(
               "--watch", push.watch,
               "instead: a folder that versions are written into (step_1, step_2, …); each new one is pushed "
               "when it is whole, until a signal ends the watch")
            ->excludes(model);
    app.add_option("--to", push.options.servers,
                   "a server: tandem://, vllm:// or sglang://HOST:PORT; may be repeated")
        ->required();
    app.add_option("--version", push.options.version,
                   "that the servers get; default: the one after each server's")
        ->check(CLI::Range(std::int64_t{1}, kNewestVersion))
        ->excludes(watch);
    CLI::Option* only = app.add_option(
        "--only", push.only,
        "push these tensors alone, by a pattern of names as in a shell ('model.layers.*'); may be "
        "repeated. Servers keep the others as they are");
    app.add_option("--deadline", push.deadline_s, "seconds for each step of a server's push")
        ->check(seconds())
        ->capture_default_str();
    app.add_option(
        "--key-file", push.key_files,
        "file with the API key of all servers, each of which thereby learns it; SERVER=FILE, with SERVER "
        "as --to has it: of that server alone; may be repeated. Default: TANDEM_API_KEY, VLLM_API_KEY, "
        "SGLANG_API_KEY");
    CLI::Option* in_flight =
        app.add_option("--in-flight", push.in_flight,
                       "the requests that a third-party server works on: wait for their end, abort them, or "
                       "keep them: they "
                       "go on with the new weights, and their answers are of several versions")
            ->check(CLI::IsMember({"wait", "abort", "keep"}))
            ->capture_default_str();
    app.add_flag("--abort-running", push.abort_running, "as --in-flight abort")->excludes(in_flight);
    app.add_flag("--verify", push.verify,
                 "compare what each server says after fixed prompts with what the weights say")
        ->excludes(only);
    app.add_flag(
        "--no-probe", push.no_probe,
        "do not ask third-party servers one prompt before and after, which shows that something has changed");
    app.add_flag("--finite", push.finite,
                 "refuse a directory with elements that are infinite or NaN, instead of warning of them");
    app.add_flag("--dry-run", push.options.dry_run, "ask and plan, change nothing")->excludes(watch);
    app.add_flag("--json", push.json, "one JSON object instead of a table; of a watch one a line");
    app.add_option("--marker", push.marker,
                   "of a watch: a file that is in a version when it is whole (STABLE)")
        ->needs(watch);
    app.add_option("--pattern", push.pattern, "of a watch: which folders are versions ('step_*')")
        ->needs(watch)
        ->capture_default_str();
    app.add_option(
           "--rest", push.rest_s,
           "of a watch without --marker: seconds that a version must not have changed, unless it was renamed "
           "to its name")
        ->needs(watch)
        ->check(seconds())
        ->capture_default_str();
    app.add_flag("--once", push.once, "of a watch: end when the newest version has been pushed")
        ->needs(watch);
    app.add_flag("--rollback", push.rollback,
                 "of a watch: what is written last is pushed, though its number be lower")
        ->needs(watch);
}

namespace {

void refuse_non_finite(const DirectorySource& source, const std::string& model) {
    const std::vector<NonFiniteTensor> found = find_non_finite(source);
    if (found.empty()) return;
    throw ConfigError(model, found.front().name,
                      text_of(found) + ": nothing was sent to any server (--finite)");
}

void tell_non_finite(const DirectorySource& source, const std::string& model, nlohmann::json& report) {
    const std::vector<NonFiniteTensor> found = find_non_finite(source, interrupted);
    if (found.empty()) return;
    log_warn("{}: {}; it is pushed as it is (--finite refuses that)", model, text_of(found));
    report["non_finite"] = json_of(found);
}

int push_to_all(PushArguments& push) {
    engine::ConnectOptions connect_options = prepare(push);
    connect_options.share = std::make_shared<engine::StagingShare>();
    push.options.only = connect_options.only = matcher(push.options.model, push.only);
    connect_options.pushed = push.options.model;
    if (push.verify) push.options.probe = make_probe(push.options.model, make_ask(connect_options));
    const auto connect = [&](const std::string& url, Deadline deadline) {
        return engine::connect(url, deadline, connect_options);
    };
    push.options.weights = std::make_shared<DirectoryWeights>(push.options.model, push.options.only);
    const DirectorySource source(push.options.weights, comm::solo());
    if (push.finite) refuse_non_finite(source, push.options.model);
    end_orderly_by_signals();
    const std::vector<ServerOutcome> outcomes = with_progress(push.options, connect);
    nlohmann::json report = push_json(push.options, outcomes);
    // Where it is only told of it is looked for behind the push: no server waits for that.
    if (!push.finite) tell_non_finite(source, push.options.model, report);
    std::cout << (push.json ? json_line(report, 2) : push_table(push.options, outcomes)) << std::flush;
    enforce(std::cout.good(), "the report cannot be written to standard output");
    const bool all =
        std::all_of(outcomes.begin(), outcomes.end(), [](const auto& server) { return server.whole; });
    return all ? 0 : 1;
}

}  // namespace

int push_command(PushArguments push) {
    if (push.options.model.empty() == push.watch.empty())
        throw ConfigError("command line", "--model",
                          "name the directory that is pushed, or with --watch a folder of them");
    if (!push.watch.empty()) return watch_command(std::move(push));
    try {
        return push_to_all(push);
    } catch (const std::exception& error) {
        // Whoever reads JSON gets an object in any case.
        nlohmann::json report = push_json(push.options, {});
        report["error"] = error.what();
        if (push.json) std::cout << json_line(report, 2);
        throw;
    }
}

}  // namespace tandem::sync
