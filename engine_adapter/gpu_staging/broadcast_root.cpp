#include "engine_adapter/gpu_staging/broadcast_root.h"

#include <thread>
#include <utility>

#include "common/device/memory.h"
#include "common/error.h"
#include "common/trace.h"

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
constexpr const char* kJoin = "join of the workers";
constexpr const char* kBroadcast = "broadcast of the weights";

}  // namespace

BroadcastRoot::BroadcastRoot(std::string server, std::string instead, const ConnectOptions& options)
    : server_(std::move(server)),
      instead_(std::move(instead)),
      api_(options.nccl ? options.nccl->api : nullptr) {}

const Api& BroadcastRoot::api() const {
    return api_ != nullptr ? *api_ : comm::nccl::api_for(device_);
}

void BroadcastRoot::leave() noexcept {
    if (group_) group_->abort();
    group_.reset();
    stream_.reset();  // drained: nothing reads the staged version any more
}

UniqueId BroadcastRoot::start(Device device) {
    leave();
    device_ = device;
    stream_.emplace(Stream::make(device_, "weights"));
    api().native_stream(*stream_);  // makes the device current
    UniqueId id{};
    if (const Result made = api().get_unique_id(&id); made != Result::success)
        Handle::fail(api(), made, kJoin, "");
    return id;
}

void BroadcastRoot::join(const UniqueId& id, std::int64_t workers, PendingCall& call, Deadline deadline) {
    try {
        group_.emplace(api(), id, 0, static_cast<int>(1 + workers), server_, deadline, [&] { call.check(); });
    } catch (const CudaError& error) {
        throw TransportError(server_, kJoin,
                             fmt::format("{}; NCCL joins GPUs, one a rank, and {} is here: the server's must "
                                         "be others, and its NCCL of the same version; or {}",
                                         error.what(), to_string(device_), instead_));
    }
}

void BroadcastRoot::sum(PendingCall& call, Deadline deadline) {
    const Buffer number(sizeof(float), "engine.staging", device_pool(device_));
    fill_zero(*stream_, number.span());
    const auto native = api().native_stream(*stream_);
    group_->launch(
        kJoin, deadline,
        [&](const Api& nccl, Comm comm) {
            return nccl.all_reduce(number.data(), number.data(), 1, Type::float32, Op::sum, comm, native);
        },
        [&] { call.check(); });
    wait_sent(kJoin, call, deadline);
}

void BroadcastRoot::broadcast(std::span<const Span> pieces, PendingCall& call, Deadline deadline) {
    const trace::Scope scope("broadcast to the workers", "load");
    const auto native = api().native_stream(*stream_);
    for (const Span piece : pieces) {
        group_->launch(
            kBroadcast, deadline,
            [&](const Api& nccl, Comm comm) {
                return nccl.broadcast(piece.data, piece.data, piece.bytes, Type::uint8, 0, comm, native);
            },
            [&] { call.check(); });
    }
    wait_sent(kBroadcast, call, deadline);
}

void BroadcastRoot::wait_sent(const std::string& phase, PendingCall& call, Deadline deadline) {
    const Event sent = stream_->record();
    while (sent.poll() == Poll::pending) {
        call.check();
        if (const Result state = group_->state(); comm::nccl::failed(state))
            Handle::fail(api(), state, phase, group_->last_error());
        if (deadline.passed()) {
            throw DeadlineExceeded(server_, phase,
                                   "its workers did not take part before the deadline; restart it if they go "
                                   "on waiting");
        }
        std::this_thread::sleep_for(kPause);
    }
    sent.wait(deadline);  // throws what the stream failed with
}

}  // namespace tandem::engine
