#include "common/comm/ipc/job.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "common/align.h"
#include "common/comm/ipc/group.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::uint64_t kMagic = 0x316d6f4a646e6154;  // "TandJom1"
constexpr std::size_t kPage = 4096;
constexpr std::size_t kHeapAlignment = std::size_t{2} << 20;

std::size_t world_offset(int world_size) {
    return round_up(offsetof(JobControl, ranks) + static_cast<std::size_t>(world_size) * sizeof(RankSlot),
                    kPage);
}

std::size_t control_bytes(int world_size) {
    return round_up(world_offset(world_size) + GroupBlock::bytes(world_size), kHeapAlignment);
}

// Virtual: as much as the machine has, since one rank may hold nearly everything. Sanitizers keep shadow
// memory for it.
std::size_t default_heap_bytes() {
#if defined(TANDEM_SANITIZE_address) || defined(TANDEM_SANITIZE_thread)
    return std::size_t{1} << 30;
#else
    const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
    return std::min(std::size_t{64} << 30, pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
#endif
}

}  // namespace

void Job::FreePrivate::operator()(std::byte* data) const {
    std::free(data);
}

void Job::lay_out(int world_size, std::size_t heap_bytes, std::size_t total_bytes) {
    control_ = new (base_) JobControl{};
    for (int r = 1; r < world_size; ++r) new (&control_->ranks[r]) RankSlot{};
    control_->total_bytes = total_bytes;
    control_->heap_bytes = heap_bytes;
    control_->heaps_offset = control_bytes(world_size);
    control_->world_size = static_cast<std::uint32_t>(world_size);
    std::vector<int> members(static_cast<std::size_t>(world_size));
    for (int r = 0; r < world_size; ++r) members[static_cast<std::size_t>(r)] = r;
    GroupBlock::create(base_ + world_offset(world_size), "world", members, 0);
    control_->magic = kMagic;
}

std::shared_ptr<Job> Job::create(int world_size, std::size_t heap_bytes) {
    enforce(world_size >= 1 && world_size <= kMaxRanks, "a job of {} ranks; 1 to {} are possible", world_size,
            kMaxRanks);
    const std::size_t heap = round_up(heap_bytes == 0 ? default_heap_bytes() : heap_bytes, kHeapAlignment);
    const std::size_t total = control_bytes(world_size) + heap * static_cast<std::size_t>(world_size);
    std::shared_ptr<Job> job(new Job);
    job->arena_ = SharedArena::create("job", total, "");
    job->base_ = job->arena_.data();
    job->lay_out(world_size, heap, total);
    return job;
}

std::shared_ptr<Job> Job::open(int fd) {
    JobControl head{};
    const ssize_t got = ::pread(fd, static_cast<void*>(&head), offsetof(JobControl, abort_state), 0);
    if (got != static_cast<ssize_t>(offsetof(JobControl, abort_state)) || head.magic != kMagic) {
        ::close(fd);
        throw ProtocolError(fmt::format("file descriptor {} does not hold a job's memory", fd));
    }
    std::shared_ptr<Job> job(new Job);
    job->arena_ = SharedArena::open(fd, head.total_bytes);
    job->base_ = job->arena_.data();
    job->control_ = std::launder(reinterpret_cast<JobControl*>(job->base_));
    return job;
}

std::shared_ptr<Job> Job::solo() {
    const std::size_t bytes = control_bytes(1);
    std::shared_ptr<Job> job(new Job);
    job->private_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
    if (!job->private_) throw Error(fmt::format("out of memory: asked for {} bytes", bytes));
    job->base_ = job->private_.get();
    job->lay_out(1, 0, bytes);
    return job;
}

Span Job::heap(int rank) const {
    const std::size_t bytes = control_->heap_bytes;
    return {base_ + control_->heaps_offset + static_cast<std::size_t>(rank) * bytes, bytes};
}

GroupBlock& Job::world_block() const {
    return *std::launder(reinterpret_cast<GroupBlock*>(base_ + world_offset(world_size())));
}

std::uint64_t Job::offset_of(ConstSpan memory) const {
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(memory.data) - reinterpret_cast<std::uintptr_t>(base_);
    if (is_solo()) return offset;
    const std::uint64_t total = control_->total_bytes;
    return offset < total && memory.bytes <= total - offset ? offset : kNowhere;
}

void Job::abort(std::string_view who, std::string_view reason) const noexcept {
    std::uint32_t none = 0;
    if (!control_->abort_state.compare_exchange_strong(none, 1)) return;
    const auto store = [](char* to, std::size_t room, std::string_view text) {
        const std::size_t bytes = std::min(room - 1, text.size());
        std::memcpy(to, text.data(), bytes);
        to[bytes] = '\0';
    };
    store(control_->abort_who, sizeof(control_->abort_who), who);
    store(control_->abort_reason, sizeof(control_->abort_reason), reason);
    control_->abort_state.store(2, std::memory_order_release);
}

std::string Job::abort_who() const {
    abort_reason();  // waits until both are written
    return control_->abort_state.load(std::memory_order_acquire) == 2 ? control_->abort_who : std::string();
}

std::string Job::abort_reason() const {
    // The writer is between two stores, unless it was killed there: then the reason stays unknown.
    for (int i = 0; i < 100 && control_->abort_state.load(std::memory_order_acquire) == 1; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::uint32_t state = control_->abort_state.load(std::memory_order_acquire);
    if (state == 0) return {};
    return state == 2 ? std::string(control_->abort_reason) : std::string("no reason given");
}

void Job::throw_aborted(std::string_view phase) const {
    const std::string reason = abort_reason();
    throw TransportError(abort_who(), std::string(phase), "the job was aborted: " + reason);
}

}  // namespace tandem::comm::ipc
