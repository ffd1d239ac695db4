#include "sync/main/commands.h"

#include <fmt/core.h>
#include <fnmatch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "common/model/mapped_files.h"
#include "common/model/safetensors.h"
#include "common/progress.h"
#include "engine_adapter/connect.h"
#include "engine_adapter/continuations.h"
#include "engine_adapter/hf_directory/shared_directory.h"
#include "sync/main/expected_answers.h"
#include "sync/push/directory_source.h"
#include "sync/session/finite.h"

namespace tandem::sync {
namespace {

constexpr std::int64_t kNewestVersion = std::int64_t{1} << 53;  // that every JSON reader knows exactly

volatile std::sig_atomic_t interrupted = 0;

// The first SIGINT or SIGTERM lets no server half way: those that are not at their commit are given up, the others are
// finished. The second ends the program at once; what it leaves the next push removes.
void end_orderly_by_signals() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

// The first line; a key on the command line would be seen by all who list processes.
std::string read_key(const std::string& file) {
    if (file.empty()) return "";
    std::string key;
    if (std::getline(std::ifstream(file), key) && key.ends_with('\r')) key.pop_back();
    if (!key.empty()) return key;
    throw ConfigError("command line", "--key-file", file + " cannot be read, or its first line is empty");
}

void refuse_repeats(std::vector<std::string> servers) {
    for (std::string& server : servers) {
        while (server.ends_with('/')) server.pop_back();
    }
    std::sort(servers.begin(), servers.end());
    const auto twice = std::adjacent_find(servers.begin(), servers.end());
    if (twice != servers.end()) throw ConfigError("command line", "--to", *twice + " is named twice");
}

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

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
    return [patterns](const std::string& name) {
        return std::ranges::any_of(patterns,
                                   [&](const std::string& pattern) { return matches(pattern, name); });
    };
}

Ask make_ask(const engine::ConnectOptions& connect) {
    return [connect](const std::string& url, const Prompts& prompts, Deadline deadline) {
        std::vector<Said> said;
        for (auto& [tokens, log_probs] :
             engine::ask_continuations(url, prompts, kProbeTokens, deadline, connect))
            said.push_back({std::move(tokens), std::move(log_probs)});
        return said;
    };
}

Probe make_probe(const std::string& model, const Ask& ask) {
    const auto answers = std::make_shared<ExpectedAnswers>(model);
    Probe probe;
    probe.expected = [answers](DType dtype) { return answers->in(dtype); };
    probe.ask = [answers, ask](const std::string& url, Deadline deadline) {
        return ask(url, answers->prompts(), deadline);
    };
    return probe;
}

std::vector<ServerOutcome> with_progress(const PushOptions& options, const Connect& connect) {
    if (isatty(STDERR_FILENO) == 0 || options.dry_run) return push_directory(options, connect);
    constexpr std::size_t kMebibyte = std::size_t{1} << 20;
    const std::size_t files = DirectorySource(options.model, comm::solo(), options.only).bytes();
    const auto total = static_cast<std::int64_t>(files * options.servers.size() / kMebibyte);
    Progress progress("push", total);
    return push_directory(options, connect, [&](std::size_t bytes) {
        // Servers may hold the weights in another dtype than the files.
        progress.update(std::min(total, static_cast<std::int64_t>(bytes / kMebibyte)), "MiB");
    });
}

}  // namespace

void add_options(CLI::App& app, PushArguments& push) {
    app.add_option("--model", push.options.model, "Hugging Face directory whose weights are pushed")
        ->required();
    app.add_option("--to", push.options.servers,
                   "a server: tandem://, vllm:// or sglang://HOST:PORT; may be repeated")
        ->required();
    app.add_option("--version", push.options.version,
                   "that the servers get; default: the one after each server's")
        ->check(CLI::Range(std::int64_t{1}, kNewestVersion));
    CLI::Option* only = app.add_option(
        "--only", push.only,
        "push these tensors alone, by a pattern of names as in a shell ('model.layers.*'); may be "
        "repeated. Servers keep the others as they are");
    app.add_option("--deadline", push.deadline_s, "seconds for each step of a server's push")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--key-file", push.key_file,
                   "file with the servers' API key; default: TANDEM_API_KEY, VLLM_API_KEY, SGLANG_API_KEY");
    app.add_flag("--abort-running", push.abort_running,
                 "end the requests that a server of others works on, instead of waiting for their end");
    app.add_flag("--verify", push.verify,
                 "compare what each server says after fixed prompts with what the weights say")
        ->excludes(only);
    app.add_flag(
        "--no-probe", push.no_probe,
        "do not ask servers of others one prompt before and after, which shows that something has changed");
    app.add_flag("--finite", push.finite,
                 "refuse a directory with elements that are infinite or NaN, instead of warning of them");
    app.add_flag("--dry-run", push.options.dry_run, "ask and plan, change nothing");
    app.add_flag("--json", push.json, "one JSON object instead of a table");
}

namespace {

// Names of directories and what servers say need not be UTF-8.
std::string text_of(const nlohmann::json& report) {
    return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void refuse_non_finite(const DirectorySource& source, const std::string& model) {
    const std::vector<NonFiniteTensor> found = find_non_finite(source);
    if (found.empty()) return;
    throw ConfigError(model, found.front().name,
                      text_of(found) + ": nothing was sent to any server (--finite)");
}

void tell_non_finite(const DirectorySource& source, const std::string& model, nlohmann::json& report) {
    const std::vector<NonFiniteTensor> found = find_non_finite(source);
    if (found.empty()) return;
    log_warn("{}: {}; it is pushed as it is (--finite refuses that)", model, text_of(found));
    report["non_finite"] = json_of(found);
}

int push_to_all(PushArguments& push) {
    push.options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(push.deadline_s * 1e3));
    for (const std::string& server : push.options.servers) engine::check_name(server);
    refuse_repeats(push.options.servers);
    end_orderly_by_signals();
    model::read_zeros_of_truncated_files();
    push.options.stop = [] { return interrupted != 0; };
    engine::ConnectOptions connect_options;
    connect_options.key = read_key(push.key_file);
    connect_options.share = std::make_shared<engine::StagingShare>();
    // Where no version is whole, after a push that was cut off, the next one is 1: below those that it has had.
    connect_options.rollback = push.options.version == 0;
    if (push.abort_running) connect_options.in_flight = engine::InFlight::abort;
    push.options.only = connect_options.only = matcher(push.options.model, push.only);
    connect_options.pushed = push.options.model;
    const Ask ask = make_ask(connect_options);
    if (push.verify) push.options.probe = make_probe(push.options.model, ask);
    if (!push.no_probe) push.options.ask = ask;
    const auto connect = [&](const std::string& url, Deadline deadline) {
        return engine::connect(url, deadline, connect_options);
    };
    const DirectorySource source(push.options.model, comm::solo(), push.options.only);
    if (push.finite) refuse_non_finite(source, push.options.model);
    const std::vector<ServerOutcome> outcomes = with_progress(push.options, connect);
    nlohmann::json report = push_json(push.options, outcomes);
    // Where it is only told of it is looked for behind the push: no server waits for that.
    if (!push.finite) tell_non_finite(source, push.options.model, report);
    std::cout << (push.json ? text_of(report) : push_table(push.options, outcomes)) << std::flush;
    enforce(std::cout.good(), "the report cannot be written to standard output");
    const bool all =
        std::all_of(outcomes.begin(), outcomes.end(), [](const auto& server) { return server.whole; });
    return all ? 0 : 1;
}

}  // namespace

int push_command(PushArguments push) {
    try {
        return push_to_all(push);
    } catch (const std::exception& error) {
        // Whoever reads JSON gets an object in any case.
        nlohmann::json report = push_json(push.options, {});
        report["error"] = error.what();
        if (push.json) std::cout << text_of(report);
        throw;
    }
}

}  // namespace tandem::sync
