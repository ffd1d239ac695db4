#include "engine_adapter/vllm/plugin_engine.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/stopwatch.h"
#include "common/trace.h"
#include "engine_adapter/http_api/weight_version.h"

namespace tandem::engine {
namespace {

using nlohmann::json;

using Clock = std::chrono::steady_clock;

constexpr int kProtocol = 1;  // of init_info and the workers' state (sync/python/tandem_sync/vllm/engine.py)
constexpr const char* kPaused = "paused by a push";  // the note

constexpr const char* kWorkerState = "POST /collective_rpc tandem_state";

}  // namespace

VllmPluginEngine::VllmPluginEngine(VllmServer server, VllmInfo info, const EngineUrl& url,
                                   const ConnectOptions& options, Deadline deadline)
    : ReceiverEngine(options.rollback),
      server_(std::move(server)),
      info_(std::move(info)),
      in_flight_(options.in_flight) {
    enforce(!options.only, "{}: its plug-in takes all weights or none, not some of them (--only)", peer());
    server_.init_weight_transfer({{"protocol", kProtocol}}, deadline);
    workers_ = ask_workers(json::object(), deadline);
    if (!workers_.failure.empty())
        throw TransportError(server_.name(), "POST /init_weight_transfer_engine", workers_.failure);
    connect_receiver("vllm", number_of(info_.weight_version), workers_.at, url, options, deadline);
    broken_ = info_.weight_version.starts_with(kLoading) || !workers_.whole;
    left_paused_ = broken_ || workers_.note == kPaused;
}

VllmPluginEngine::~VllmPluginEngine() {
    if (state_ != Server::paused) return;
    log_warn("{} is left paused: its push ended without resume or abort", server_.name());
}

VllmPluginEngine::Workers VllmPluginEngine::ask_workers(const json& arguments, Deadline deadline) {
    const json answers = server_.call_workers("tandem_state", arguments, deadline);
    Workers all;
    try {
        bool first = true;
        for (const json& one : answers) {
            require_protocol(one, kProtocol, server_.name(), kWorkerState);
            const auto version = integer_of(one.at("version"), -1);
            all.whole = all.whole && one.at("whole").get<bool>() && (first || version == all.version);
            all.version = version;
            all.load_ms = std::max(all.load_ms, one.at("load_ms").get<double>());
            all.open = all.open || one.at("open").get<bool>();
            first = false;
            const auto failure = one.at("failure").get<std::string>();
            if (!failure.empty() && all.failure.empty())
                all.failure = fmt::format("worker {}: {}", one.at("rank").dump(), failure);
            if (one.at("receiver") == "") continue;
            all.at = whereabouts_of(one);
            all.memory = one.at("memory").get<std::string>();
            all.note = one.at("note").get<std::string>();
        }
    } catch (const json::exception& error) {
        throw TransportError(server_.name(), kWorkerState,
                             fmt::format("a worker's state makes no sense: {}", error.what()));
    } catch (const BadInput& error) {
        throw TransportError(server_.name(), kWorkerState,
                             fmt::format("a worker's state makes no sense: {}", error.what()));
    }
    if (all.at.receiver.empty())
        throw TransportError(server_.name(), kWorkerState, "no worker says where it receives weights");
    return all;
}

VllmPluginEngine::Workers VllmPluginEngine::leave_note(const char* note, Deadline deadline) {
    return ask_workers({{"note", note}}, deadline);
}

void VllmPluginEngine::pause(Deadline deadline) {
    if (state_ != Server::running) return;
    info_.weight_version = server_.weight_version(deadline);  // who knows what came since it was asked last
    capabilities_.version = number_of(info_.weight_version);
    broken_ = broken_ || info_.weight_version.starts_with(kLoading);
    left_paused_ = left_paused_ || broken_;
    others_paused_ = others_.found(server_, left_paused_, deadline);
}

void VllmPluginEngine::resume(Deadline deadline) {
    if (state_ == Server::loading) {
        throw ProtocolError(fmt::format(
            "{} is not resumed: its workers have not said that they loaded the weights that they were "
            "told to; push again",
            server_.name()));
    }
    if (state_ == Server::running) return;
    if (!others_paused_) server_.resume(deadline);
    const double paused_ms = ms_since(paused_at_);
    state_ = Server::running;
    left_paused_ = false;
    const Workers now = leave_note("", deadline);
    log_debug(
        "{}: paused for {:.1f} ms: {:.1f} to pause it, {:.1f} until its workers had loaded (vLLM's reload: "
        "{:.1f}), "
        "{:.1f} to finish, {:.1f} to resume it",
        server_.name(), paused_ms, spent_.pause_ms, spent_.load_ms, now.load_ms, spent_.finish_ms,
        paused_ms - spent_.pause_ms - spent_.load_ms - spent_.finish_ms);
}

void VllmPluginEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    stage(version, manifest, deadline);
    load_staged(version, deadline);
    state_ = Server::paused;
    loaded(version);
    broken_ = false;
    info_.weight_version = std::to_string(version);
    workers_.version = version;
}

// What comes before the pause is done while the server generates.
void VllmPluginEngine::load_staged(std::int64_t version, Deadline deadline) {
    const Workers now = leave_note(others_paused_ ? "" : kPaused, deadline);
    state_ = Server::paused;
    // An update that a killed pusher left open is as good as a new one.
    if (!now.open) server_.start_weight_update(deadline);
    paused_at_ = Clock::now();
    server_.pause(in_flight_, deadline);
    // Nobody takes what follows for whole weights, nor for a pause of somebody else.
    server_.set_weight_version(fmt::format("{}{}", kLoading, version), deadline);
    const auto loading = Clock::now();
    spent_.pause_ms = ms_since(paused_at_);
    update_workers(version, deadline);
    const auto loaded = Clock::now();
    spent_.load_ms = ms_since(loading);
    server_.finish_weight_update(std::to_string(version), deadline);
    server_.reset_prefix_cache(deadline);
    spent_.finish_ms = ms_since(loaded);
}

// An update that its workers refuse before they touch anything leaves the server as it was. What they say of it is asked
// for: none raises (sync/python/tandem_sync/vllm/engine.py).
void VllmPluginEngine::update_workers(std::int64_t version, Deadline deadline) {
    const trace::Scope scope("vLLM loads", "load");
    state_ = Server::loading;
    try {
        server_.update_weights({{"version", version}, {"memory", workers_.memory}}, deadline);
    } catch (const DeadlineExceeded&) {
        throw;
    } catch (const TransportError&) {
        if (as_before(deadline)) state_ = Server::paused;
        throw;
    }
    const Workers now = ask_workers(json::object(), deadline);
    if (now.whole && now.version == version && now.failure.empty()) return;
    if (holds_as_before(now)) state_ = Server::paused;
    throw TransportError(
        server_.name(), "POST /update_weights",
        now.failure.empty() ? "its workers do not hold what they were told to load" : now.failure);
}

bool VllmPluginEngine::holds_as_before(const Workers& now) const {
    return now.whole && now.version == workers_.version && !broken_;
}

// Whether every worker says that it holds what it held before this push.
bool VllmPluginEngine::as_before(Deadline deadline) {
    try {
        return holds_as_before(ask_workers(json::object(), deadline));
    } catch (const std::exception& error) {
        log_warn("{} does not say what its workers hold: {}", server_.name(), error.what());
        return false;
    }
}

void VllmPluginEngine::abort(const std::string& reason, Deadline deadline) {
    drop_staged(reason, deadline);
    if (state_ == Server::running) return;
    broken_ = broken_ || state_ == Server::loading;
    state_ = Server::running;
    left_paused_ = !others_paused_;  // until it has been resumed
    if (broken_) return log_left_paused(server_.name(), reason);
    resume_as_before([&] { server_.set_weight_version(info_.weight_version, deadline); },
                     [&] {
                         if (!others_paused_) server_.resume(deadline);
                         left_paused_ = false;
                         leave_note("", deadline);
                     });
}

}  // namespace tandem::engine
