#include "engine_adapter/transport/nccl/member.h"

#include <algorithm>
#include <thread>

#include "common/comm/gpu_identity.h"
#include "common/comm/host_identity.h"
#include "common/comm/nccl/emulated.h"
#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"

namespace tandem::engine {
namespace {

using comm::nccl::Api;
using comm::nccl::Comm;
using comm::nccl::Handle;
using comm::nccl::Result;

constexpr std::chrono::microseconds kFirstPause{10};
constexpr std::chrono::microseconds kLongestPause{200};
constexpr std::chrono::milliseconds kLook{10};  // at the channel and at NCCL's state
constexpr int kTrainer = 0;                     // its rank
constexpr const char* kPeer = "trainer rank 0";

}  // namespace

std::string NcclMember::seat() const {
    if (device_.type != DeviceType::cuda)
        throw ProtocolError("NCCL moves memory of GPUs, and this engine's weights are on the CPU");
    return comm::host_identity() + " " + comm::gpu_identity(device_);
}

const Api& NcclMember::api() {
    if (api_ == nullptr) api_ = &comm::nccl::api_for(device_);
    return *api_;
}

void NcclMember::join(const comm::nccl::UniqueId& id, int rank, int size, Deadline deadline,
                      const Check& check) {
    drop();
    seat();  // there is a GPU
    if (!stream_) stream_.emplace(Stream::make(device_, "receiver nccl"));
    api().native_stream(*stream_);  // makes the device current
    handle_.emplace(api(), id, rank, size, "weights", deadline, check);
}

void NcclMember::leave() {
    if (!handle_) return;
    api().native_stream(*stream_);
    handle_.reset();
}

void NcclMember::drop() noexcept {
    if (!handle_) return;
    handle_->abort();
    handle_.reset();
    try {
        stream_->synchronize();  // nothing writes to the room any more
    } catch (const std::exception& error) {
        spdlog::warn("receiver: {}", error.what());
    }
}

void NcclMember::prepare(const TransferPlan& plan) {
    forget();
    std::vector<Runs> buckets;
    std::uint64_t largest = 0;
    for (std::size_t b = 0; b < plan.buckets(); ++b) {
        buckets.push_back(
            runs_of(std::span(plan.transfers).subspan(plan.first[b], plan.first[b + 1] - plan.first[b])));
        largest = std::max(largest, buckets.back().bytes);
    }
    if (largest > 0) room_ = ExportArena::create(device_, largest, "receiver.nccl");
    buckets_ = std::move(buckets);
}

void NcclMember::forget() {
    here_ = nullptr;
    buckets_.clear();
    room_ = {};
}

void NcclMember::bring(int bucket, NcclForm form, Deadline deadline, const Check& check) {
    const trace::Scope scope("receive bucket " + std::to_string(bucket), "copy");
    const std::string phase = "load bucket " + std::to_string(bucket);
    if (!handle_) throw ProtocolError(phase + " over NCCL before a group was joined");
    require(bucket >= 0 && static_cast<std::size_t>(bucket) < buckets_.size(), "bucket {} of {}", bucket,
            buckets_.size());
    here_ = &buckets_[static_cast<std::size_t>(bucket)];
    if (here_->list.empty()) return;
    try {
        const auto native = api().native_stream(*stream_);
        handle_->launch(
            phase, deadline,
            [&](const Api& api, Comm comm) {
                for (const Run& run : here_->list) {
                    std::byte* to = room_.data() + run.packed;
                    const Result result =
                        form == NcclForm::broadcast
                            ? api.broadcast(to, to, run.bytes, comm::nccl::Type::uint8, kTrainer, comm,
                                            native)
                            : api.recv(to, run.bytes, comm::nccl::Type::uint8, kTrainer, comm, native);
                    if (result != Result::success && result != Result::in_progress) return result;
                }
                return Result::success;
            },
            check);
        await(stream_->record(), phase, deadline, check);
    } catch (...) {
        drop();
        throw;
    }
}

void NcclMember::await(const Event& done, const std::string& phase, Deadline deadline, const Check& check) {
    auto look = std::chrono::steady_clock::now() + kLook;
    for (auto pause = kFirstPause; done.poll() == Poll::pending; pause = std::min(2 * pause, kLongestPause)) {
        if (std::chrono::steady_clock::now() >= look) {
            check();
            const Result state = handle_->state();
            if (state != Result::success && state != Result::in_progress)
                Handle::fail(api(), state, phase, handle_->last_error());
            if (deadline.passed())
                throw DeadlineExceeded(kPeer, phase, "its bytes did not come over NCCL within the deadline");
            look = std::chrono::steady_clock::now() + kLook;
        }
        std::this_thread::sleep_for(pause);
    }
    done.wait(deadline);  // rethrows the stream's error
}

const std::byte* NcclMember::at(std::uint32_t region, std::uint64_t offset) const {
    require(here_ != nullptr, "no bucket has been brought");
    return room_.data() + here_->packed(region, offset);
}

}  // namespace tandem::engine
