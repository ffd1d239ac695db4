// One Hugging Face directory into several running servers: each has a session and a thread of its own, so that one that
// is slow or dead holds up nobody else.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sync/push/change.h"
#include "sync/push/directory_source.h"
#include "sync/push/probe.h"
#include "sync/session/session.h"

namespace tandem::sync {

struct PushOptions {
    std::string model;  // the directory
    std::shared_ptr<const DirectoryWeights> weights =
        {};                                       // of it, opened: empty: they are when the push begins
    std::vector<std::string> servers;             // URLs
    std::int64_t version = 0;                     // 0: the one after the newest that a server says it has
    std::chrono::milliseconds deadline{120'000};  // of each server: the transfer, the load, the other steps
    // To engines that are connected so: `version` need not be above what they have had.
    bool rollback = false;
    bool dry_run = false;
    // Whether a tensor is pushed; empty: all are. Servers keep what they have of the others.
    std::function<bool(const std::string& name)> only = {};
    std::optional<Probe> probe = {};  // asked of each server before and after; absent: none is
    Ask ask = {};  // of servers that tell no checksums, where there is no probe: empty: none is asked
    // Asked between buckets, from any thread: true ends each push that has not come to its commit.
    std::function<bool()> stop = {};
};

// How it is known that a server has what was pushed.
enum class Known : std::uint8_t {
    not_proven,   // it says so
    by_probe,     // and answers otherwise than before (change.h)
    by_checksum,  // it compared the bytes that it took
    verified      // it answers as the pushed weights do (probe.h)
};

struct ServerOutcome {
    std::string url;
    std::string kind;          // "vllm"; empty: it was not reached
    std::int64_t before = 0;   // version when it was asked
    std::int64_t version = 0;  // that it has now, as far as is known; a dry run: that it would have
    bool whole = false;        // it has what was to be pushed, as the probe finds too; a dry run: it could
    Known known = Known::not_proven;  // where it is whole
    bool compared = false;            // its architecture, with the directory's: equal where it is whole
    std::size_t bytes = 0;            // of its weights
    double prepared_ms = 0;           // before it stopped generating
    double paused_ms = 0;
    std::optional<ProbeReport> probe;
    std::string error;
};

// Throws what connecting throws.
using Connect = std::function<std::unique_ptr<engine::Engine>(const std::string& url, Deadline deadline)>;
// May be called from any thread, one at a time: how many bytes all servers together have taken.
using PushProgress = std::function<void(std::size_t bytes)>;

// Blocks until each server has the directory's weights or has failed, in the order of `servers`. Throws ConfigError: the
// directory cannot be read, or holds no tensor that is to be pushed.
std::vector<ServerOutcome> push_directory(PushOptions options, const Connect& connect,
                                          const PushProgress& progress = {});

std::string to_text(Known known);  // "by checksum"
std::string push_table(const PushOptions& options, const std::vector<ServerOutcome>& outcomes);
nlohmann::json outcome_json(const PushOptions& options, const ServerOutcome& outcome);
nlohmann::json push_json(const PushOptions& options, const std::vector<ServerOutcome>& outcomes);

}  // namespace tandem::sync
