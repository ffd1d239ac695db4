#include "engine_adapter/tandem/engine.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/error.h"
#include "common/http/access.h"
#include "common/http/client.h"
#include "engine_adapter/channel/messages.h"
#include "engine_adapter/tandem/route.h"
#include "engine_adapter/transport/cuda_ipc/transport.h"
#include "engine_adapter/transport/nccl/transport.h"
#include "engine_adapter/transport/shm/transport.h"
#include "engine_adapter/transport/tcp/transport.h"

namespace tandem::engine {

TandemEngine::TandemEngine(Channel channel, const ConnectOptions& options, Deadline deadline)
    : connection_(std::make_shared<Connection>(std::move(channel))), rollback_(options.rollback) {
    const nlohmann::json hello = {
        {"op", "hello"}, {"protocol", messages::kProtocol}, {"lease_ms", options.lease.count()}};
    capabilities_ = messages::capabilities_from_json(connection_->request(hello, "hello", deadline).header);
    transport_ = make_transport(device_);
}

void TandemEngine::join(const std::shared_ptr<NcclGroup>& group, int rank) {
    transport_ = std::make_unique<NcclTransport>(connection_, group, rank);
    over_network_ = true;
    capabilities_.alias = false;
}

void TandemEngine::go_over_tcp(const TcpAddress& to, const TcpOptions& options) {
    transport_ = std::make_unique<TcpTransport>(connection_, to, options);
    over_network_ = true;
    capabilities_.alias = false;
    capabilities_.remote = true;
}

// --- the port: a request each

void TandemEngine::pause(Deadline deadline) {
    resumed_ = false;
    const Message reply = connection_->request(
        {{"op", "pause"}, {"timeout_ms", messages::timeout_ms(deadline)}}, "pause", deadline);
    packed_ms_ = reply.header.contains("packed_ms") ? messages::number_field(reply.header, "packed_ms") : 0.0;
}

void TandemEngine::resume(Deadline deadline) {
    if (std::exchange(resumed_, false)) return;
    connection_->request({{"op", "resume"}}, "resume", deadline);
}

void TandemEngine::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    const Device from = regions.empty() ? Device{} : regions.front().device;
    if (over_network_ || from.type == device_.type) return transport_->attach(regions, plan, deadline);
    auto transport = make_transport(from);
    transport->attach(regions, plan, deadline);
    transport_ = std::move(transport);
    device_ = from;
}

void TandemEngine::release(Deadline deadline) {
    connection_->request({{"op", "release"}}, "release", deadline);
}

double TandemEngine::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes,
                           Deadline deadline) {
    return start_probe(offset, bytes, piece_bytes, deadline)();
}

std::function<double()> TandemEngine::start_probe(std::uint64_t offset, std::uint64_t bytes,
                                                  std::uint64_t piece_bytes, Deadline deadline) {
    const nlohmann::json header = {
        {"op", "probe"}, {"offset", offset}, {"bytes", bytes}, {"piece_bytes", piece_bytes}};
    const std::int64_t request = connection_->post(header, "probe", deadline);
    return [connection = connection_, request, deadline] {
        return messages::number_field(connection->wait(request, "probe", deadline).header, "ms");
    };
}

Held TandemEngine::held(Deadline deadline) {
    const nlohmann::json reply = connection_->request({{"op", "held"}}, "held", deadline).header;
    return {messages::integer_field(reply, "version", 0),
            ops::checksum_from_hex(messages::string_field(reply, "manifest"))};
}

void TandemEngine::begin(std::int64_t version, Deadline deadline) {
    connection_->request({{"op", "begin"}, {"version", version}, {"rollback", rollback_}}, "begin", deadline);
}

double TandemEngine::verify(std::span<const ops::Checksum> checksums, Deadline deadline) {
    const Message reply = request_all({{"op", "verify"}}, checksums, "verify", deadline);
    return messages::number_field(reply.header, "ms");
}

void TandemEngine::adopt(std::uint64_t shift, std::span<const ops::Checksum> checksums, Deadline deadline) {
    request_all({{"op", "adopt"}, {"shift", shift}}, checksums, "adopt", deadline);
}

namespace {

// --- commit, perhaps asked for ahead

nlohmann::json commit_request(std::int64_t version, const ops::Checksum& manifest, bool resumes) {
    return {{"op", "commit"}, {"version", version}, {"manifest", ops::to_hex(manifest)}, {"resume", resumes}};
}

}  // namespace

void TandemEngine::commit_ahead(std::int64_t version, const ops::Checksum& manifest, bool only_rank,
                                Deadline deadline) {
    require(!commit_, "commit of version {} was asked for already", version);
    commit_ = Asked{connection_->post(commit_request(version, manifest, only_rank), "commit", deadline),
                    version, manifest, only_rank};
}

void TandemEngine::commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    const std::optional<Asked> asked = std::exchange(commit_, std::nullopt);
    if (asked) {
        require(asked->version == version && asked->manifest == manifest,
                "commit of version {}, and version {} was asked for, or another manifest", version,
                asked->version);
        connection_->wait(asked->request, "commit", deadline);
        resumed_ = asked->resumes;
    } else {
        connection_->request(commit_request(version, manifest, false), "commit", deadline);
    }
    rollback_ = false;
}

void TandemEngine::abort(const std::string& reason, Deadline deadline) {
    // Whatever was in flight is void, even when the engine does not answer.
    const auto forget = [this] {
        transport_->forget_in_flight();
        if (commit_) connection_->forget(commit_->request);
        commit_.reset();
        resumed_ = false;
    };
    try {
        connection_->request({{"op", "abort"}, {"reason", reason}}, "abort", deadline);
    } catch (const std::exception&) {
        forget();
        throw;
    }
    forget();
}

std::vector<ops::Checksum> TandemEngine::checksums(Deadline deadline) {
    const Message reply = connection_->request({{"op", "checksums"}}, "checksums", deadline);
    return messages::from_bytes<ops::Checksum>({reply.payload.data(), reply.payload.size()},
                                               capabilities_.tensors.size());
}

std::unique_ptr<Transport> TandemEngine::make_transport(Device regions) const {
    if (regions.type == DeviceType::cuda) return std::make_unique<CudaIpcTransport>(connection_);
    return std::make_unique<ShmTransport>(connection_);
}

Message TandemEngine::request_all(nlohmann::json header, std::span<const ops::Checksum> checksums,
                                  const char* phase, Deadline deadline) {
    require(checksums.size() == transport_->transfers(), "{}: {} checksums for {} transfers", phase,
            checksums.size(), transport_->transfers());
    header["checksums"] = checksums.size();
    return connection_->request(std::move(header), phase, deadline, messages::as_bytes(checksums));
}

namespace {

// --- from a name to an engine

constexpr std::string_view kTcp = "tcp://";
constexpr auto kTrainerGoes =
    std::chrono::seconds(2);  // until an engine has heard that the one before is gone

// What GET /model_info of a tandem-engine says of its receiver.
Whereabouts ask_whereabouts(const std::string& name, const std::string& http_url, const std::string& key,
                            Deadline deadline) {
    http::Client http(http_url, key);
    const nlohmann::json info = http.get_json("/model_info", deadline);
    const auto tandem = info.find("tandem");
    if (tandem == info.end() || !tandem->is_object() || !tandem->contains("receiver") ||
        !tandem->at("receiver").is_string()) {
        throw TransportError("engine " + name, "connect",
                             "/model_info names no \"tandem\": {\"receiver\"}: not tandem-engine");
    }
    Whereabouts found;
    found.receiver = tandem->at("receiver").get<std::string>();
    if (const auto host = tandem->find("host"); host != tandem->end())
        found.here = *host == tcp::host_fingerprint();
    if (const auto port = tandem->find("data_port"); port != tandem->end() && port->is_number_integer())
        found.data_port = port->dump();
    return found;
}

ReceiverRoute route_to(const std::string& name, const std::string& key, Deadline deadline) {
    if (name.starts_with("unix-abstract:")) return {name, {.receiver = name}, "", {}, "", ""};
    const EngineUrl url = parse_engine_url(name);
    if (url.base.starts_with(kTcp))
        return {parse_tcp_address(url.base.substr(kTcp.size())), url.tcp_options, key};
    constexpr std::string_view kScheme = "tandem://";
    const std::string http_url =
        url.base.starts_with(kScheme) ? "http://" + url.base.substr(kScheme.size()) : url.base;
    const Whereabouts found = ask_whereabouts(name, http_url, key, deadline);
    const http::Url server = http::parse_url(http_url);
    const std::string host = server.socket.empty() ? server.host : "127.0.0.1";
    return {name, found, host, url, "start tandem-engine with --data-listen HOST:PORT", key};
}

std::unique_ptr<TandemEngine> connect_one(const std::string& name, const ConnectOptions& options,
                                          Deadline deadline) {
    const ReceiverRoute route = route_to(name, key_for(name, options, "TANDEM_API_KEY"), deadline);
    return route.connect(options, deadline, deadline.within(kTrainerGoes));
}

}  // namespace

std::vector<std::unique_ptr<Engine>> connect_tandem(const std::vector<std::string>& names,
                                                    const ConnectOptions& options, Deadline deadline) {
    enforce(options.in_flight != InFlight::keep,
            "{}: a tandem-engine keeps no requests through a change of weights: each answer is of one "
            "version (--in-flight "
            "wait)",
            names.front());
    std::vector<std::unique_ptr<TandemEngine>> ranks;
    for (const std::string& name : names) ranks.push_back(connect_one(name, options, deadline));
    if (options.nccl) {
        std::vector<std::shared_ptr<Connection>> connections;
        for (const auto& rank : ranks) connections.push_back(rank->connection());
        const auto group = std::make_shared<NcclGroup>(std::move(connections), *options.nccl);
        for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i]->join(group, static_cast<int>(i));
    }
    return {std::make_move_iterator(ranks.begin()), std::make_move_iterator(ranks.end())};
}

}  // namespace tandem::engine
