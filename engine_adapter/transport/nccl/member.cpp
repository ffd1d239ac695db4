#include "engine_adapter/transport/nccl/member.h"

#include <algorithm>
#include <thread>

#include "common/comm/nccl/api.h"
#include "common/error.h"
#include "common/identity/gpu_identity.h"
#include "common/identity/host_identity.h"
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
constexpr std::chrono::milliseconds kCheckPeersEvery{10};  // the channel and NCCL's state
constexpr std::size_t kSlots = 2;
constexpr std::chrono::seconds kCopies{2};  // at most, for a bucket's: they depend on no peer
constexpr int kTrainer = 0;                 // its rank
constexpr const char* kPeer = "trainer rank 0";

std::string phase_of(const Announced& announced) {
    return "load bucket " + std::to_string(announced.bucket);
}

}  // namespace

// --- in the group, and out of it

std::string NcclMember::gpu_id() const {
    if (device_.type != DeviceType::cuda)
        throw ProtocolError("NCCL moves memory of GPUs, and this engine's weights are on the CPU");
    return host_identity() + " " + gpu_identity(device_);
}

const Api& NcclMember::api() {
    if (api_ == nullptr) api_ = &comm::nccl::api_for(device_);
    return *api_;
}

void NcclMember::join(const comm::nccl::UniqueId& id, int rank, int size, Deadline deadline,
                      const Check& check) {
    drop();
    gpu_id();  // there is a GPU
    if (!stream_) stream_.emplace(Stream::make(device_, "receiver nccl"));
    api().native_stream(*stream_);  // makes the device current
    handle_.emplace(api(), id, rank, size, "weights", deadline, check);
}

void NcclMember::leave() {
    if (!handle_) return;
    if (!receiving_.empty()) return drop();  // it would wait for what the trainer will not send
    api().native_stream(*stream_);
    handle_.reset();
}

void NcclMember::drop() noexcept {
    receiving_.clear();
    received_ = {};
    if (!handle_) return;
    try {  // so that no receive is still to start when NCCL frees what it would use
        for (const Slot& slot : slots_) slot.read.wait(Deadline::after(kCopies));
    } catch (const std::exception& error) {
        log_warn("receiver: {}", error.what());
    }
    handle_->abort();
    handle_.reset();
    try {
        stream_->synchronize();  // nothing writes to the slots any more
    } catch (const std::exception& error) {
        log_warn("receiver: {}", error.what());
    }
}

// --- two slots, as large as the largest bucket

void NcclMember::prepare(const TransferPlan& plan) {
    forget();
    std::vector<Runs> buckets;
    std::uint64_t largest = 0;
    for (std::size_t b = 0; b < plan.buckets(); ++b) {
        buckets.push_back(runs_of(plan.bucket(b)));
        largest = std::max(largest, buckets.back().bytes);
    }
    std::vector<Slot> slots(std::min(kSlots, std::max<std::size_t>(buckets.size(), 1)));
    for (Slot& slot : slots) {
        if (largest > 0) slot.memory = ExportArena::create(device_, largest, "receiver.nccl");
    }
    buckets_ = std::move(buckets);
    slots_ = std::move(slots);
}

void NcclMember::forget() {
    if (!receiving_.empty()) drop();  // nothing writes to memory that goes
    received_ = {};
    buckets_.clear();
    slots_.clear();
    next_slot_ = 0;
}

const Runs& NcclMember::runs_of_bucket(int bucket) const {
    require(bucket >= 0 && static_cast<std::size_t>(bucket) < buckets_.size(), "bucket {} of {}", bucket,
            buckets_.size());
    return buckets_[static_cast<std::size_t>(bucket)];
}

// --- a receive: launched ahead, waited for, its slot given back once read

bool NcclMember::start_receive(const Announced& next, const Check& check) {
    if (!handle_) throw ProtocolError(phase_of(next) + " over NCCL before a group was joined");
    const auto known = [&](const Receiving& one) { return one.announced.request == next.request; };
    if (std::any_of(receiving_.begin(), receiving_.end(), known) || runs_of_bucket(next.bucket).list.empty())
        return true;
    if (launching_) return false;  // `check` asks while NCCL is about to launch
    if (receiving_.size() + (received_.runs != nullptr ? 1 : 0) >= slots_.size()) return false;
    Slot& slot = slots_[next_slot_];
    launching_ = true;
    try {
        stream_->wait(slot.read);
        launch_receive(next, slot, check);
        receiving_.push_back({next, next_slot_, stream_->record()});
        launching_ = false;
    } catch (...) {
        launching_ = false;
        drop();
        throw;
    }
    next_slot_ = (next_slot_ + 1) % slots_.size();
    return true;
}

void NcclMember::launch_receive(const Announced& next, const Slot& slot, const Check& check) {
    const auto native = api().native_stream(*stream_);
    handle_->launch(
        phase_of(next), next.deadline,
        [&](const Api& api, Comm comm) {
            for (const Run& run : runs_of_bucket(next.bucket).list) {
                std::byte* to = slot.memory.data() + run.packed;
                const Result result =
                    next.form == NcclForm::broadcast
                        ? api.broadcast(to, to, run.bytes, comm::nccl::Type::uint8, kTrainer, comm, native)
                        : api.recv(to, run.bytes, comm::nccl::Type::uint8, kTrainer, comm, native);
                if (failed(result)) return result;
            }
            return Result::success;
        },
        check);
}

void NcclMember::receive(const Announced& next, const Check& check) {
    const trace::Scope scope("receive bucket " + std::to_string(next.bucket), "copy");
    received_ = {};
    const bool started = start_receive(next, check);
    require(started && !receiving_.empty() && receiving_.front().announced.request == next.request,
            "{}: another bucket was announced first", phase_of(next));
    const Receiving receiving = receiving_.front();
    try {
        await(receiving, check);
    } catch (...) {
        drop();
        throw;
    }
    receiving_.pop_front();
    received_ = {&runs_of_bucket(next.bucket), receiving.slot, receiving.arrived};
}

void NcclMember::await(const Receiving& receiving, const Check& check) {
    const std::string phase = phase_of(receiving.announced);
    const Event& done = receiving.arrived;
    const Deadline deadline = receiving.announced.deadline;
    const auto require_well = [&] {
        const Result state = handle_->state();
        if (failed(state)) Handle::fail(api(), state, phase, handle_->last_error());
    };
    auto next_check = std::chrono::steady_clock::now() + kCheckPeersEvery;
    for (auto pause = kFirstPause; done.poll() == Poll::pending; pause = std::min(2 * pause, kLongestPause)) {
        if (std::chrono::steady_clock::now() >= next_check) {
            check();
            require_well();
            if (deadline.passed())
                throw DeadlineExceeded(kPeer, phase, "its bytes did not come over NCCL within the deadline");
            next_check = std::chrono::steady_clock::now() + kCheckPeersEvery;
        }
        std::this_thread::sleep_for(pause);
    }
    done.wait(deadline);  // rethrows the stream's error
    require_well();       // a receive that failed is over, too
}

const std::byte* NcclMember::at(std::uint32_t region, std::uint64_t offset) const {
    require(received_.runs != nullptr, "no bucket has been received");
    return slots_[received_.slot].memory.data() + received_.runs->packed(region, offset);
}

void NcclMember::release_after(const Event& done) {
    require(received_.runs != nullptr, "no bucket has been received");
    slots_[received_.slot].read = done;
    received_ = {};
}

}  // namespace tandem::engine
