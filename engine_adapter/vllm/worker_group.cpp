#include "engine_adapter/vllm/worker_group.h"

#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"
#include "engine_adapter/torch_pickle/tensors.h"

namespace tandem::engine {
namespace {

using comm::nccl::Api;
using comm::nccl::Comm;
using comm::nccl::Handle;
using comm::nccl::Op;
using comm::nccl::Result;
using comm::nccl::Type;
using comm::nccl::UniqueId;

constexpr std::chrono::microseconds kPause{50};
constexpr std::chrono::seconds kLeave{5};
constexpr const char* kJoin = "join of the workers";
constexpr const char* kBroadcast = "broadcast of the weights";

}  // namespace

WorkerGroup::WorkerGroup(VllmServer& server, const std::string& key, const ConnectOptions& options,
                         Deadline deadline)
    : beside_(server.name(), key),
      workers_(server.world_size(deadline)),
      api_(options.nccl ? options.nccl->api : nullptr) {}

WorkerGroup::~WorkerGroup() {
    leave();
    dismiss_workers();
}

void WorkerGroup::dismiss_workers() noexcept {
    if (!workers_in_group_) return;
    workers_in_group_ = false;
    try {
        beside_.shutdown_weight_transfer(Deadline::after(kLeave));
    } catch (const std::exception& error) {
        log_warn("{}: its workers keep a communicator that nobody uses: {}", beside_.name(), error.what());
    }
}

const Api& WorkerGroup::api() const {
    return api_ != nullptr ? *api_ : comm::nccl::api_for(device_);
}

void WorkerGroup::leave() noexcept {
    if (group_) group_->abort();
    group_.reset();
    stream_.reset();  // drained: nothing reads what is staged any more
}

void WorkerGroup::form(Device device, nlohmann::json init_info, Deadline deadline) {
    leave();
    device_ = device;
    dismiss_workers();
    stream_.emplace(Stream::make(device_, "weights"));
    api().native_stream(*stream_);  // makes the device current
    UniqueId id{};
    if (const Result made = api().get_unique_id(&id); made != Result::success)
        Handle::fail(api(), made, kJoin, "");
    init_info["nccl_unique_id_b64"] = base64({id.bytes, sizeof id.bytes});
    init_info["rank_offset"] = 1;
    init_info["world_size"] = 1 + workers_;
    PendingCall workers_join([&] { beside_.init_weight_transfer(init_info, deadline); });
    try {
        join(id, workers_join, deadline);
        workers_join.wait();
        workers_in_group_ = true;
    } catch (const CudaError& error) {
        leave();
        throw TransportError(
            beside_.name(), kJoin,
            fmt::format("{}; NCCL joins GPUs, one a rank, and {} is here: the server's must be "
                        "others (or start it with the backend \"ipc\")",
                        error.what(), to_string(device_)));
    } catch (...) {
        leave();
        throw;
    }
}

// A worker sums one number over all ranks as soon as it has joined.
void WorkerGroup::join(const UniqueId& id, PendingCall& workers_join, Deadline deadline) {
    const auto check = [&] { workers_join.check(); };
    group_.emplace(api(), id, 0, static_cast<int>(1 + workers_), beside_.name(), deadline, check);
    const Buffer number(sizeof(float), "engine.staging", device_pool(device_));
    fill_zero(*stream_, number.span());
    const auto native = api().native_stream(*stream_);
    group_->launch(
        kJoin, deadline,
        [&](const Api& nccl, Comm comm) {
            return nccl.all_reduce(number.data(), number.data(), 1, Type::float32, Op::sum, comm, native);
        },
        check);
    wait_sent(kJoin, workers_join, deadline);
}

void WorkerGroup::update(const nlohmann::json& info, std::span<const Span> pieces, Deadline deadline) {
    const trace::Scope scope("broadcast to vLLM", "load");
    PendingCall workers_receive([&] { beside_.update_weights(info, deadline); });
    try {
        for (const Span piece : pieces) broadcast(piece, workers_receive, deadline);
        wait_sent(kBroadcast, workers_receive, deadline);
        workers_receive.wait();
    } catch (...) {
        leave();
        throw;
    }
}

// One launch each, as the workers'.
void WorkerGroup::broadcast(Span bytes, PendingCall& workers_receive, Deadline deadline) {
    const auto native = api().native_stream(*stream_);
    group_->launch(
        kBroadcast, deadline,
        [&](const Api& nccl, Comm comm) {
            return nccl.broadcast(bytes.data, bytes.data, bytes.bytes, Type::uint8, 0, comm, native);
        },
        [&] { workers_receive.check(); });
}

void WorkerGroup::wait_sent(const std::string& phase, PendingCall& workers, Deadline deadline) {
    const Event sent = stream_->record();
    while (sent.poll() == Poll::pending) {
        workers.check();
        if (const Result state = group_->state(); comm::nccl::failed(state))
            Handle::fail(api(), state, phase, group_->last_error());
        if (deadline.passed()) {
            throw DeadlineExceeded(
                beside_.name(), phase,
                "its workers did not take part before the deadline; restart it if they go on "
                "waiting");
        }
        std::this_thread::sleep_for(kPause);
    }
    sent.wait(deadline);  // throws what the stream failed with
}

}  // namespace tandem::engine
