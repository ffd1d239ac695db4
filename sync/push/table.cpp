#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/printable.h"
#include "sync/push/push.h"

namespace tandem::sync {
namespace {

const char* outcome_of(const PushOptions& options, const ServerOutcome& server) {
    if (!server.whole) return "FAILED";
    return options.dry_run ? "would take it" : "updated";
}

// How it is known; nothing where there is nothing to know.
std::string evidence_of(const PushOptions& options, const ServerOutcome& server) {
    return server.whole && !options.dry_run ? to_text(server.known) : "";
}

const char* architecture_of(const ServerOutcome& server) {
    if (server.compared) return "equal";
    return server.whole ? "not compared" : "";
}

std::string version_text(std::int64_t version) {
    return version == 0 ? "-" : std::to_string(version);
}

}  // namespace

std::string to_text(Known known) {
    switch (known) {
        case Known::not_proven:
            return "not proven";
        case Known::by_probe:
            return "by probe";
        case Known::by_checksum:
            return "by checksum";
        case Known::verified:
            return "verified";
    }
    return "";
}

std::string push_table(const PushOptions& options, const std::vector<ServerOutcome>& outcomes) {
    std::size_t width = 6;
    for (const ServerOutcome& server : outcomes) width = std::max(width, server.url.size());
    std::string text = fmt::format("{:<{}}  {:<6}  {:>8}  {:>9}  {:>7}  {:>7}  {:<11}  {}\n", "server", width,
                                   "kind", "MiB", "paused ms", "before", "version", "known", "outcome");
    for (const ServerOutcome& server : outcomes) {
        text += fmt::format("{:<{}}  {:<6}  {:>8.1f}  {:>9.1f}  {:>7}  {:>7}  {:<11}  {}\n", server.url,
                            width, server.kind.empty() ? "?" : printable(server.kind),
                            static_cast<double>(server.bytes) / 1048576.0, server.paused_ms,
                            version_text(server.before), version_text(server.version),
                            evidence_of(options, server), outcome_of(options, server));
    }
    for (const ServerOutcome& server : outcomes) {
        if (server.whole && !server.compared)
            text += fmt::format("{}: its architecture is not compared: it does not say it\n", server.url);
        if (server.probe) text += fmt::format("{}: {}\n", server.url, printable(server.probe->text()));
        if (!server.error.empty()) text += fmt::format("{}: {}\n", server.url, printable(server.error));
    }
    return text;
}

nlohmann::json outcome_json(const PushOptions& options, const ServerOutcome& outcome) {
    nlohmann::json json = {{"url", outcome.url},
                           {"kind", outcome.kind},
                           {"version_before", outcome.before},
                           {"version", outcome.version},
                           {"whole", outcome.whole},
                           {"known", evidence_of(options, outcome)},
                           {"architecture", architecture_of(outcome)},
                           {"bytes", outcome.bytes},
                           {"prepared_ms", outcome.prepared_ms},
                           {"paused_ms", outcome.paused_ms},
                           {"error", outcome.error}};
    if (outcome.probe) json["probe"] = outcome.probe->json();
    return json;
}

nlohmann::json push_json(const PushOptions& options, const std::vector<ServerOutcome>& outcomes) {
    nlohmann::json servers = nlohmann::json::array();
    for (const ServerOutcome& outcome : outcomes) servers.push_back(outcome_json(options, outcome));
    return {{"model", options.model}, {"dry_run", options.dry_run}, {"servers", servers}};
}

}  // namespace tandem::sync
