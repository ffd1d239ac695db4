#include "sync/main/push_setup.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "common/error.h"
#include "common/json_text.h"
#include "common/user_file.h"
#include "engine_adapter/questions.h"
#include "sync/main/expected_answers.h"

namespace tandem::sync {
namespace {

volatile std::sig_atomic_t signalled = 0;

// The first line; a key on the command line would be seen by all who list processes.
std::string read_key(const std::string& file) {
    constexpr std::size_t kMostBytes = 16'384;  // servers take no longer header
    const auto refuse = [&](const std::string& why) {
        throw ConfigError("command line", "--key-file", file + " " + why);
    };
    std::ifstream in(file);
    std::string key;
    if (next_line(in, key, kMostBytes) && key.ends_with('\r')) key.pop_back();
    if (key.empty()) refuse("cannot be read, or its first line is empty");
    if (key.size() > kMostBytes)
        refuse(fmt::format("holds no key: its first line is longer than {} bytes", kMostBytes));
    return key;
}

std::string without_slashes(std::string server) {
    while (server.ends_with('/')) server.pop_back();
    return server;
}

// FILE of SERVER=FILE, where that is this server.
std::optional<std::string> own_key_file(const std::string& given, const std::string& server) {
    std::string rest = given;
    if (!rest.starts_with(without_slashes(server))) return {};
    rest.erase(0, without_slashes(server).size());
    rest.erase(0, rest.find_first_not_of('/'));
    if (!rest.starts_with('=')) return {};
    return rest.substr(1);
}

// FILE, or SERVER=FILE.
void read_keys(const PushArguments& push, engine::ConnectOptions& connect) {
    const auto refuse = [](const std::string& why) { throw ConfigError("command line", "--key-file", why); };
    for (const std::string& given : push.key_files) {
        bool of_one = false;
        for (const std::string& server : push.options.servers) {
            const auto file = own_key_file(given, server);
            if (file && !connect.keys.emplace(server, read_key(*file)).second)
                refuse(server + " has two files");
            of_one = of_one || file;
        }
        if (of_one) continue;
        if (const auto scheme = given.find("://"); given.find('=', scheme) != std::string::npos)
            refuse(given.substr(0, given.rfind('=')) + " is none of the servers (--to)");
        if (!connect.key.empty())
            refuse(given + " is a second file for all servers: name those of one as SERVER=FILE");
        connect.key = read_key(given);
    }
}

void refuse_repeats(std::vector<std::string> servers) {
    for (std::string& server : servers) server = without_slashes(server);
    std::sort(servers.begin(), servers.end());
    const auto twice = std::adjacent_find(servers.begin(), servers.end());
    if (twice != servers.end()) throw ConfigError("command line", "--to", *twice + " is named twice");
}

}  // namespace

engine::ConnectOptions prepare(PushArguments& push) {
    push.options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(push.deadline_s * 1e3));
    for (const std::string& server : push.options.servers) engine::check_name(server);
    refuse_repeats(push.options.servers);
    push.options.stop = interrupted;
    engine::ConnectOptions connect;
    read_keys(push, connect);
    connect.in_flight = engine::in_flight_from_name(push.abort_running ? "abort" : push.in_flight);
    if (!push.no_probe) push.options.ask = make_ask(connect);
    return connect;
}

void end_orderly_by_signals() {
    struct sigaction action {};
    action.sa_handler = [](int) { signalled = 1; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool interrupted() {
    return signalled != 0;
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

bool matches(const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::function<bool(const std::string& name)> any_of(const std::vector<std::string>& patterns) {
    if (patterns.empty()) return {};
    return [patterns](const std::string& name) {
        return std::ranges::any_of(patterns,
                                   [&](const std::string& pattern) { return matches(pattern, name); });
    };
}

std::string json_line(const nlohmann::json& report, int indent) {
    return text_of_json(report, indent) + "\n";
}

}  // namespace tandem::sync
