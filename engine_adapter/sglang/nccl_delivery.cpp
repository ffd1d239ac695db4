#include "engine_adapter/sglang/nccl_delivery.h"

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "common/comm/gloo/address.h"
#include "common/error.h"
#include "common/http/client.h"
#include "common/identity/job_secret.h"
#include "common/log.h"

namespace tandem::engine {
namespace {

constexpr std::chrono::milliseconds kAsk{1};
constexpr std::chrono::seconds kLeave{5};

// At which the server's ranks reach this process.
std::string address_towards(const SglangServer& server, Deadline deadline) {
    const std::string& name = server.name();
    const http::Url url = http::parse_url("http" + name.substr(name.find("://")));
    return comm::gloo::listen_address(url.host, deadline).ip;
}

}  // namespace

SglangBroadcast::SglangBroadcast(const SglangServer& server, const SglangInfo& info, const std::string& key,
                                 Device device, const ConnectOptions& options)
    : ranks_(static_cast<std::int64_t>(info.ranks)),
      sessions_(info.sessions),
      model_(info.model.directory),
      staging_(options.staging),
      stager_(info.tensors, server.name(), device, packed_bytes(options)),
      beside_(server.name(), key),
      root_(server.name(), "use sglang+tensor://", options) {}

SglangBroadcast::~SglangBroadcast() {
    leave();
}

// The store goes last: ranks ask it while they leave.
void SglangBroadcast::leave() noexcept {
    root_.leave();
    if (!group_.empty()) {
        try {
            beside_.destroy_group(group_, Deadline::after(kLeave));
        } catch (const std::exception& error) {
            log_warn("{}: its ranks keep a communicator that nobody uses: {}", beside_.name(), error.what());
        }
    }
    group_.clear();
    store_.reset();
}

void SglangBroadcast::finish(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) {
    stager_.finish(version, manifest);
    if (group_.empty()) meet(deadline);
}

void SglangBroadcast::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

void SglangBroadcast::meet(Deadline deadline) {
    id_ = root_.start(stager_.device());
    const std::string here = address_towards(beside_, deadline);
    group_ = "tandem-" + random_hex();
    store_ = std::make_unique<TorchStore>(here, 0, TorchStoreOptions{.secret = group_});
    try {
        beside_.init_group({{"master_address", here},
                            {"master_port", store_->port()},
                            {"rank_offset", 1},
                            {"world_size", 1 + ranks_},
                            {"group_name", group_},
                            {"backend", "nccl"}},
                           deadline);
    } catch (...) {
        leave();
        throw;
    }
}

SglangAnswer SglangBroadcast::load_paused(SglangServer& server, Deadline deadline) {
    try {
        return in_session(server, sessions_, deadline, [&] {
            return by_chunks(stager_, [&](const PackedChunk& chunk) { return send(chunk, deadline); });
        });
    } catch (...) {
        leave();
        throw;
    }
}

SglangAnswer SglangBroadcast::send(const PackedChunk& chunk, Deadline deadline) {
    nlohmann::json body = {{"names", nlohmann::json::array()},  {"dtypes", nlohmann::json::array()},
                           {"shapes", nlohmann::json::array()}, {"group_name", group_},
                           {"load_format", "flattened_bucket"}, {"flush_cache", false}};
    for (const TensorInfo* tensor : stager_.tensors_of(chunk)) {
        body["names"].push_back(tensor->name);
        body["dtypes"].push_back(dtype_name(tensor->dtype));
        body["shapes"].push_back(tensor->shape);
    }
    SglangAnswer answer;
    try {
        PendingCall ranks_receive([&] {
            answer = beside_.update_from_group(body.dump(), deadline);
            if (answer.update != SglangUpdate::done)
                throw TransportError(beside_.name(), answer.phase, answer.why);
        });
        if (!root_.joined()) {
            publish_id(ranks_receive, deadline);
            root_.join(id_, ranks_, ranks_receive, deadline);
        }
        const Span piece = stager_.memory().subspan(chunk.begin, chunk.bytes);
        root_.broadcast({&piece, 1}, ranks_receive, deadline);
        ranks_receive.wait();
    } catch (const TransportError&) {  // the call has ended
        if (answer.update != SglangUpdate::refused) throw;
        leave();
    }
    return answer;
}

// PyTorch's ProcessGroupNCCL has ranks other than 0 wait for the id in the group's store, under a name of which each
// version makes something else: the one that they wait for. Names that clients may wait for hold the group's, which only its
// ranks were told.
void SglangBroadcast::publish_id(PendingCall& call, Deadline deadline) {
    std::set<std::string> awaited;
    while (awaited.empty()) {
        call.check();
        if (deadline.passed()) {
            throw DeadlineExceeded(beside_.name(), "join of the ranks",
                                   "none of them asked for the group's id before the deadline");
        }
        std::this_thread::sleep_for(kAsk);
        awaited = store_->awaited();
    }
    for (const std::string& name : awaited) store_->set(name, {id_.bytes, sizeof id_.bytes});
}

}  // namespace tandem::engine
