#include "common/comm/ipc/job.h"

#include <sys/stat.h>
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
#include "common/device/huge_pages.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr std::uint64_t kMagic = 0x316d6f4a646e6154;  // "TandJom1"
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMaxHeap = std::size_t{1} << 46;  // all an address space has: 64 TiB

std::size_t world_offset(int world_size) {
    return round_up(offsetof(JobControl, ranks) + static_cast<std::size_t>(world_size) * sizeof(RankSlot),
                    kPage);
}

std::size_t control_bytes(int world_size) {
    return round_up(world_offset(world_size) + GroupBlock::bytes(world_size), kHugePage);
}

// Up to its end, or to the room's where a peer has written over that.
template <std::size_t room>
std::string text_in(const char (&shared)[room]) {
    char own[room];
    std::memcpy(own, shared, room);
    own[room - 1] = '\0';
    return own;
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

// --- the segment: laid out, made by the launcher, opened by a rank

void Job::FreePrivate::operator()(std::byte* data) const {
    std::free(data);
}

Job::Layout Job::layout_of(int world_size, std::size_t heap_bytes) {
    Layout layout{
        .world_size = world_size, .heap_bytes = heap_bytes, .heaps_offset = control_bytes(world_size)};
    std::size_t heaps = 0;
    enforce(!__builtin_mul_overflow(heap_bytes, static_cast<std::size_t>(world_size), &heaps) &&
                !__builtin_add_overflow(layout.heaps_offset, heaps, &layout.total_bytes),
            "a job of {} heaps of {} bytes", world_size, heap_bytes);
    return layout;
}

void Job::lay_out(const Layout& layout) {
    layout_ = layout;
    control_ = new (base_) JobControl{};
    for (int r = 1; r < layout.world_size; ++r) new (&control_->ranks[r]) RankSlot{};
    control_->total_bytes = layout.total_bytes;
    control_->heap_bytes = layout.heap_bytes;
    control_->heaps_offset = layout.heaps_offset;
    control_->world_size = static_cast<std::uint32_t>(layout.world_size);
    std::vector<int> members(static_cast<std::size_t>(layout.world_size));
    for (int r = 0; r < layout.world_size; ++r) members[static_cast<std::size_t>(r)] = r;
    GroupBlock::create(base_ + world_offset(layout.world_size), "world", members, 0);
    control_->magic = kMagic;
}

std::shared_ptr<Job> Job::create(int world_size, std::size_t heap_bytes) {
    enforce(world_size >= 1 && world_size <= kMaxRanks, "a job of {} ranks; 1 to {} are possible", world_size,
            kMaxRanks);
    const Layout layout =
        layout_of(world_size, round_up(heap_bytes == 0 ? default_heap_bytes() : heap_bytes, kHugePage));
    std::shared_ptr<Job> job(new Job);
    job->arena_ = SharedArena::create("job", layout.total_bytes, "");
    job->base_ = job->arena_.data();
    job->lay_out(layout);
    return job;
}

std::shared_ptr<Job> Job::open(int fd, int world_size) {
    require(world_size >= 1, "a job of {} ranks", world_size);
    JobControl head{};
    struct stat info {};
    const ssize_t got = ::pread(fd, static_cast<void*>(&head), offsetof(JobControl, abort_state), 0);
    const auto refuse = [&](const std::string& why) {
        ::close(fd);
        throw ProtocolError(fmt::format("file descriptor {} does not hold a job's memory: {}", fd, why));
    };
    if (got != static_cast<ssize_t>(offsetof(JobControl, abort_state)) || head.magic != kMagic ||
        ::fstat(fd, &info) != 0) {
        refuse("it does not begin as one");
    }
    if (head.world_size != static_cast<std::uint32_t>(world_size) || world_size > kMaxRanks)
        refuse(fmt::format("it was made for {} ranks, WORLD_SIZE is {}", head.world_size, world_size));
    if (head.heap_bytes == 0 || head.heap_bytes % kHugePage != 0 || head.heap_bytes > kMaxHeap)
        refuse(fmt::format("heaps of {} bytes", head.heap_bytes));
    const Layout layout = layout_of(world_size, head.heap_bytes);
    if (head.heaps_offset != layout.heaps_offset || head.total_bytes != layout.total_bytes ||
        static_cast<std::size_t>(info.st_size) != layout.total_bytes) {
        refuse(fmt::format("{} bytes are announced in a file of {}, and {} ranks with {} bytes each need {}",
                           head.total_bytes, info.st_size, world_size, head.heap_bytes, layout.total_bytes));
    }
    std::shared_ptr<Job> job(new Job);
    job->layout_ = layout;
    job->arena_ = SharedArena::open(fd, layout.total_bytes);
    job->base_ = job->arena_.data();
    job->control_ = std::launder(reinterpret_cast<JobControl*>(job->base_));
    return job;
}

std::shared_ptr<Job> Job::solo() {
    const Layout layout = layout_of(1, 0);
    const std::size_t bytes = layout.total_bytes;
    std::shared_ptr<Job> job(new Job);
    job->private_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes)));
    if (!job->private_) throw Error(fmt::format("out of memory: asked for {} bytes", bytes));
    job->base_ = job->private_.get();
    job->lay_out(layout);
    return job;
}

// --- memory as an offset that every rank understands

Span Job::heap(int rank) const {
    const std::size_t bytes = layout_.heap_bytes;
    return {base_ + layout_.heaps_offset + static_cast<std::size_t>(rank) * bytes, bytes};
}

std::byte* Job::at(std::uint64_t offset, std::uint64_t bytes) const {
    const std::uint64_t total = layout_.total_bytes;
    if (!is_solo() && (offset > total || bytes > total - offset)) {
        throw ProtocolError(
            fmt::format("a rank names {} bytes at offset {} of the job's memory, which has {}: it is "
                        "broken, or written by a stranger",
                        bytes, offset, total));
    }
    return base_ + offset;
}

GroupBlock& Job::world_block() const {
    return *std::launder(reinterpret_cast<GroupBlock*>(base_ + world_offset(world_size())));
}

std::uint64_t Job::offset_of(ConstSpan memory) const {
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(memory.data) - reinterpret_cast<std::uintptr_t>(base_);
    if (is_solo()) return offset;
    const std::uint64_t total = layout_.total_bytes;
    return offset < total && memory.bytes <= total - offset ? offset : kNowhere;
}

// --- the end that any rank may declare, once

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
    return control_->abort_state.load(std::memory_order_acquire) == 2 ? text_in(control_->abort_who)
                                                                      : std::string();
}

std::string Job::abort_reason() const {
    // The writer is between two stores, unless it was killed there: then the reason stays unknown.
    for (int i = 0; i < 100 && control_->abort_state.load(std::memory_order_acquire) == 1; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::uint32_t state = control_->abort_state.load(std::memory_order_acquire);
    if (state == 0) return {};
    return state == 2 ? text_in(control_->abort_reason) : std::string("no reason given");
}

void Job::throw_aborted(std::string_view phase) const {
    const std::string reason = abort_reason();
    throw TransportError(abort_who(), std::string(phase), "the job was aborted: " + reason);
}

}  // namespace tandem::comm::ipc
