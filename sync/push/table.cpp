#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/printable.h"
#include "sync/push/push.h"

namespace tandem::sync {
namespace {

std::string outcome_of(const PushOptions& options, const ServerOutcome& server) {
    if (!server.whole) return "FAILED";
    const std::string taken = options.dry_run ? "would take it" : "updated";
    return server.compared ? taken : taken + "; architecture not compared";
}

const char* architecture_of(const ServerOutcome& server) {
    if (server.compared) return "equal";
    return server.whole ? "not compared" : "";
}

std::string version_text(std::int64_t version) {
    return version == 0 ? "-" : std::to_string(version);
}

}  // namespace

std::string push_table(const PushOptions& options, const std::vector<ServerOutcome>& outcomes) {
    std::size_t width = 6;
    for (const ServerOutcome& server : outcomes) width = std::max(width, server.url.size());
    std::string text = fmt::format("{:<{}}  {:<6}  {:>10}  {:>9}  {:>7}  {:>7}  {}\n", "server", width,
                                   "kind", "MiB", "paused ms", "before", "version", "outcome");
    for (const ServerOutcome& server : outcomes) {
        text += fmt::format("{:<{}}  {:<6}  {:>10.1f}  {:>9.1f}  {:>7}  {:>7}  {}\n", server.url, width,
                            server.kind.empty() ? "?" : printable(server.kind),
                            static_cast<double>(server.bytes) / 1048576.0, server.paused_ms,
                            version_text(server.before), version_text(server.version),
                            outcome_of(options, server));
    }
    for (const ServerOutcome& server : outcomes) {
        if (server.probe) text += fmt::format("{}: {}\n", server.url, printable(server.probe->text()));
        if (!server.error.empty()) text += fmt::format("{}: {}\n", server.url, printable(server.error));
    }
    return text;
}

nlohmann::json push_json(const PushOptions& options, const std::vector<ServerOutcome>& outcomes) {
    nlohmann::json servers = nlohmann::json::array();
    for (const ServerOutcome& server : outcomes) {
        servers.push_back({{"url", server.url},
                           {"kind", server.kind},
                           {"version_before", server.before},
                           {"version", server.version},
                           {"whole", server.whole},
                           {"architecture", architecture_of(server)},
                           {"bytes", server.bytes},
                           {"prepared_ms", server.prepared_ms},
                           {"paused_ms", server.paused_ms},
                           {"error", server.error}});
        if (server.probe) servers.back()["probe"] = server.probe->json();
    }
    return {{"model", options.model}, {"dry_run", options.dry_run}, {"servers", servers}};
}

}  // namespace tandem::sync
