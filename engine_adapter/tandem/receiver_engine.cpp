#include "engine_adapter/tandem/receiver_engine.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/client.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

constexpr const char* kHowToListen =
    "start the server with TANDEM_DATA_LISTEN=HOST:PORT and TANDEM_API_KEY in its environment, and this "
    "program with the same key";

std::unique_ptr<TandemEngine> open_receiver(const std::string& server, const ReceiverRoute& route,
                                            const ConnectOptions& options, Deadline deadline) {
    try {
        return route.connect(options, deadline, deadline);
    } catch (const TransportError& error) {
        throw TransportError(
            server, "connect",
            fmt::format(
                "its worker's receiver does not take this trainer: {}; it takes one at a time, of the "
                "same user, on the same host and in the same network namespace, or over TCP ({})",
                error.what(), kHowToListen),
            true);
    }
}

}  // namespace

void ReceiverEngine::connect_receiver(const std::string& kind, std::int64_t version, const Whereabouts& at,
                                      const EngineUrl& server, const ConnectOptions& options,
                                      Deadline deadline) {
    const std::string host = http::parse_url("http" + server.base.substr(server.base.find("://"))).host;
    const ReceiverRoute route(peer(), at, host, server, kHowToListen, http::key_from_environment());
    receiver_ = open_receiver(peer(), route, options, deadline);
    capabilities_ = receiver_->capabilities();
    capabilities_.engine = kind;
    capabilities_.version = capabilities_.newest = version;
    capabilities_.alias = false;
    capabilities_.stages = capabilities_.maps = true;
}

void ReceiverEngine::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    receiver_->attach(regions, plan, deadline);
}

void ReceiverEngine::release(Deadline deadline) {
    receiver_->release(deadline);
}

double ReceiverEngine::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                             Deadline deadline) {
    return receiver_->probe(offset, bytes, piece_bytes, deadline);
}

std::function<double()> ReceiverEngine::start_probe(std::uint64_t offset, std::uint64_t bytes,
                                                    std::uint64_t piece_bytes, Deadline deadline) {
    return receiver_->start_probe(offset, bytes, piece_bytes, deadline);
}

Held ReceiverEngine::held(Deadline deadline) {
    return receiver_->held(deadline);
}

void ReceiverEngine::begin(std::int64_t version, Deadline deadline) {
    const std::int64_t newest = capabilities_.version;
    if (version <= newest && !rollback_)
        throw ProtocolError(fmt::format("version {} is not above {}, which {} has", version, newest, peer()));
    receiver_->allow_rollback();  // it may have staged versions that the server never loaded
    receiver_->begin(version, deadline);
}

double ReceiverEngine::verify(std::span<const ops::Checksum> checksums, Deadline deadline) {
    return receiver_->verify(checksums, deadline);
}

void ReceiverEngine::adopt(std::uint64_t, std::span<const ops::Checksum>, Deadline) {
    throw BadInput(
        fmt::format("{} does not read weights in place: use mode gather, direct or delta", peer()));
}

void ReceiverEngine::stage(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    receiver_->commit(version, manifest, deadline);
}

void ReceiverEngine::loaded(std::int64_t version) {
    capabilities_.version = version;
    rollback_ = false;
}

void ReceiverEngine::drop_staged(const std::string& reason, Deadline deadline) {
    try {
        receiver_->abort(reason, deadline);
    } catch (const std::exception& error) {  // it hears of it by the end of the connection
        log_warn("{}: its receiver was not told to abort: {}", peer(), error.what());
    }
}

std::vector<ops::Checksum> ReceiverEngine::checksums(Deadline deadline) {
    const std::string holds = weight_version(deadline);
    const std::string staged = std::to_string(receiver_->held(deadline).version);
    if (holds != staged) {
        throw ProtocolError(fmt::format("{} holds version '{}' and has {} staged: push before comparing them",
                                        peer(), holds, staged));
    }
    return receiver_->checksums(deadline);
}

Whereabouts whereabouts_of(const nlohmann::json& state) {
    Whereabouts at;
    at.receiver = state.at("receiver").get<std::string>();
    at.here = state.value("host", tcp::host_fingerprint()) == tcp::host_fingerprint();
    const int port = state.value("data_port", 0);  // an older plug-in says neither
    at.data_port = port > 0 ? std::to_string(port) : "";
    return at;
}

void require_protocol(const nlohmann::json& state, int ours, const std::string& server,
                      const std::string& phase) {
    const nlohmann::json& theirs = state.at("protocol");
    if (theirs == ours) return;
    throw TransportError(server, phase,
                         fmt::format("its plug-in speaks protocol {}, this program {}: install the same "
                                     "version of both",
                                     theirs.dump(), ours));
}

}  // namespace tandem::engine
