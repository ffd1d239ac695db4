// push --watch: keeps servers at the newest whole version of a folder.
#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/log.h"
#include "common/printable.h"
#include "engine_adapter/hf_directory/shared_directory.h"
#include "engine_adapter/questions.h"
#include "sync/main/push_setup.h"
#include "sync/session/finite.h"
#include "sync/watch/fleet.h"

namespace tandem::sync {
namespace {

using nlohmann::json;

// Lines on standard output, or JSON ones; from any thread.
class Reporter {
  public:
    explicit Reporter(const PushArguments& push) : push_(push) {}

    void brought(const Version& version, const std::vector<ServerOutcome>& outcomes, double seconds,
                 bool again) {
        json servers = json::array();
        std::set<std::string> known;
        std::size_t whole = 0, bytes = 0;
        double paused_ms = 0;
        for (const ServerOutcome& outcome : outcomes) {
            servers.push_back(outcome_json(push_.options, outcome));
            if (!outcome.whole) continue;
            ++whole;
            bytes = std::max(bytes, outcome.bytes);
            paused_ms = std::max(paused_ms, outcome.paused_ms);
            known.insert(to_text(outcome.known));
        }
        std::string how;
        for (const std::string& one : known) how += (how.empty() ? "" : ", ") + one;
        const std::string text =
            fmt::format("version {:<6}  {}  {}  {:.1f} MiB  paused {:.1f} ms  {:.2f} s  {}", version.number,
                        printable(version.name),
                        again ? "also at " + outcomes.front().url
                              : fmt::format("{} of {} servers", whole, push_.options.servers.size()),
                        static_cast<double>(bytes) / 1048576.0, paused_ms, seconds, how);
        say(text, {{"event", "version"},
                   {"name", version.name},
                   {"version", version.number},
                   {"again", again},
                   {"seconds", seconds},
                   {"servers", servers}});
    }
    void trouble(const std::string& url, const std::string& text) {
        say(url + ": " + printable(text), {{"event", "trouble"}, {"url", url}, {"text", text}});
    }
    void notice(const std::string& text) { say(printable(text), {{"event", "notice"}, {"text", text}}); }
    void end(const std::vector<Fleet::Holding>& holdings) {
        std::string text = "who has what:";
        json servers = json::array();
        for (const Fleet::Holding& one : holdings) {
            const std::string held = one.version == 0 ? "none of these versions"
                                                      : fmt::format("version {} ({})", one.version, one.name);
            text += fmt::format("\n  {}: {}", one.url, printable(held));
            if (!one.trouble.empty()) text += "; " + printable(one.trouble);
            servers.push_back(
                {{"url", one.url}, {"name", one.name}, {"version", one.version}, {"trouble", one.trouble}});
        }
        say(text, {{"event", "end"}, {"servers", servers}});
    }

  private:
    void say(const std::string& text, const json& event) {
        const std::lock_guard lock(mutex_);
        std::cout << (push_.json ? json_line(event) : text + "\n") << std::flush;
    }

    const PushArguments& push_;
    std::mutex mutex_;
};

// Pushes of one version that overlap share what they stage.
class Shares {
  public:
    std::shared_ptr<engine::StagingShare> of(const Version& version) {
        const std::lock_guard lock(mutex_);
        std::erase_if(shares_, [](const auto& one) { return one.second.expired(); });
        auto share = shares_[version.weights.get()].lock();
        if (!share) shares_[version.weights.get()] = share = std::make_shared<engine::StagingShare>();
        return share;
    }

  private:
    std::mutex mutex_;
    std::map<const DirectoryWeights*, std::weak_ptr<engine::StagingShare>> shares_;
};

// A higher version than this is somebody else's, or of an earlier run: it stays, unless its server was started anew.
void require_lower(const engine::Engine& engine, const Version& version, bool may_go_back) {
    const std::int64_t has = engine.capabilities().version;
    if (has <= version.number || may_go_back) return;
    throw Error(fmt::format("it has version {}, which is above {}: it keeps that (--rollback takes it back)",
                            has, version.number));
}

ServerOutcome push_version(const PushArguments& push, engine::ConnectOptions connect, const std::string& url,
                           const Version& version, bool may_go_back) {
    PushOptions options = push.options;
    options.model = version.path;
    options.weights = version.weights;
    options.servers = {url};
    options.version = version.number;
    if (push.verify) options.probe = make_probe(version.path, make_ask(connect));
    connect.pushed = version.path;
    connect.only = push.options.only;
    connect.rollback = true;  // the same version may come again; a higher one: require_lower
    options.rollback = true;
    return push_directory(std::move(options),
                          [&](const std::string& name, Deadline deadline) {
                              auto engine = engine::connect(name, deadline, connect);
                              require_lower(*engine, version, may_go_back);
                              return engine;
                          })
        .front();
}

// The highest version that a server has: folders without a number come after it.
std::int64_t highest_version(const PushArguments& push, const engine::ConnectOptions& connect) {
    std::int64_t highest = 0;
    for (const std::string& url : push.options.servers) {
        try {
            highest = std::max(highest, engine::ask_state(url, Deadline::after_ms(5'000), connect).version);
        } catch (const Error&) {  // its keeper tells
        }
    }
    return highest;
}

bool tell_non_finite(const PushArguments& push, const Version& version, Reporter& report) {
    const auto found = find_non_finite(DirectorySource(version.weights, comm::solo()), interrupted);
    if (found.empty()) return false;
    report.notice(fmt::format(
        "{}: {}{}", version.name, text_of(found),
        push.finite ? ": not pushed (--finite)" : "; it is pushed as it is (--finite refuses that)"));
    return true;
}

}  // namespace

int watch_command(PushArguments push) {
    constexpr std::chrono::milliseconds kLook{200};
    constexpr std::chrono::seconds kLongUnfinished{60};
    const engine::ConnectOptions connect = prepare(push);
    push.options.only = any_of(push.only);
    Reporter report(push);
    Shares shares;
    VersionFolders folders(
        {push.watch, push.pattern, push.marker,
         std::chrono::milliseconds(static_cast<std::int64_t>(push.rest_s * 1e3)), push.rollback},
        [&](const std::string& text) { report.notice(text); },
        [&](const std::string& path) { return std::make_shared<DirectoryWeights>(path, push.options.only); });
    folders.count_from(highest_version(push, connect));
    end_orderly_by_signals();
    Fleet fleet(push.options.servers,
                {[&](const std::string& url, const Version& version, bool restarted) {
                     engine::ConnectOptions with = connect;
                     with.share = shares.of(version);
                     return push_version(push, with, url, version, restarted || push.rollback);
                 },
                 [&](const std::string& url) {
                     return engine::ask_state(url, Deadline::after_ms(5'000), connect).incarnation;
                 }},
                {[&](const Version& version, const std::vector<ServerOutcome>& outcomes, double seconds,
                     bool again) { report.brought(version, outcomes, seconds, again); },
                 [&](const std::string& url, const std::string& text) { report.trouble(url, text); }});

    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    auto unfinished_since = begun;
    std::string unfinished;
    bool any = false;
    while (!interrupted()) {
        if (const std::optional<Version> spoiled = fleet.take_spoiled()) folders.forget(*spoiled);
        if (std::optional<Version> version = folders.look()) {
            if (push.finite && tell_non_finite(push, *version, report)) continue;
            if (interrupted()) break;
            any = true;
            fleet.bring(*version);
            if (!push.finite) tell_non_finite(push, *version, report);
        }
        if (unfinished != folders.unfinished()) {
            unfinished = folders.unfinished();
            unfinished_since = Clock::now();
        } else if (!unfinished.empty() && Clock::now() - unfinished_since >= kLongUnfinished) {
            report.notice(unfinished + " (for a minute now: not whole)");
            unfinished_since = Clock::time_point::max() - kLongUnfinished;
        }
        if (push.once && any && fleet.tried()) break;
        if (push.once && !any && Clock::now() - begun >= push.options.deadline) {
            report.notice(unfinished.empty() ? push.watch + " has no version that could be pushed"
                                             : unfinished + ": no version is whole");
            break;
        }
        folders.wait(kLook);
    }
    fleet.stop();
    report.end(fleet.holdings());
    enforce(std::cout.good(), "the report cannot be written to standard output");
    return fleet.all_have_newest() && (any || !push.once) ? 0 : 1;
}

}  // namespace tandem::sync
