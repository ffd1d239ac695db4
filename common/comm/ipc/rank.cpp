#include "common/comm/ipc/rank.h"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "common/comm/ipc/futex.h"
#include "common/cores.h"
#include "common/deadline.h"
#include "common/device/huge_pages.h"
#include "common/error.h"

namespace tandem::comm::ipc {
namespace {

constexpr int kMaxGroups = 1 << 20;  // of one leader: more than its heap has room for

}  // namespace

Rank::Rank(std::shared_ptr<Job> job_in, int rank_in)
    : job(std::move(job_in)),
      index(rank_in),
      may_spin(job->world_size() <= static_cast<int>(usable_cores().size())) {
    enforce(index >= 0 && index < job->world_size(), "rank {} of a job of {} ranks", index,
            job->world_size());
    RankSlot& slot = job->slot(index);
    enforce(slot.attached.exchange(1) == 0, "rank {} of this job is taken already, by process {}", index,
            slot.pid.load());
    slot.pid.store(::getpid());
    if (job->is_solo()) {
        pool = &cpu_pool();
    } else {
        heap = make_range_pool(job->heap(index), "heap of " + name(), Device{}, hold_in_huge_pages);
        pool = heap.get();
    }
}

std::shared_ptr<Gpu> Rank::gpu(Device device) {
    const std::lock_guard lock(mutex_);
    auto& gpu = gpus_[device.index];
    if (!gpu) gpu = std::make_shared<Gpu>(device);
    return gpu;
}

std::shared_ptr<Gpu> Rank::gpu_if_any(Device device) {
    const std::lock_guard lock(mutex_);
    const auto found = gpus_.find(device.index);
    return found == gpus_.end() ? nullptr : found->second;
}

GroupBlock* Rank::find(int leader, const std::string& group_name, const std::vector<int>& ranks,
                       std::uint32_t occurrence) const {
    const int size = static_cast<int>(ranks.size());
    std::uint64_t at = job->slot(leader).groups_head.load(std::memory_order_acquire);
    for (int blocks = 0; at != 0; ++blocks) {
        if (blocks == kMaxGroups || at % alignof(GroupBlock) != 0)
            throw ProtocolError(fmt::format("the groups of rank {} are no list any more", leader));
        auto* block = std::launder(reinterpret_cast<GroupBlock*>(job->at(at, sizeof(GroupBlock))));
        const std::uint64_t next = block->next;
        if (block->size == ranks.size()) {
            job->at(at, GroupBlock::bytes(size));
            if (GroupView(*block, size).is(group_name, ranks, occurrence)) return block;
        }
        at = next;
    }
    return nullptr;
}

GroupBlock& Rank::join(const std::string& group_name, const std::vector<int>& ranks) {
    const std::string phase = "split '" + group_name + "'";
    job->throw_if_aborted(phase);
    const int leader = ranks.front();
    RankSlot& slot = job->slot(leader);
    std::uint32_t occurrence = 0;
    {
        const std::lock_guard lock(mutex_);
        occurrence = joined_[{group_name, ranks}]++;
        if (leader == index) {
            // Kept to this rank's end, when its heap is handed out no more: a peer may still look at the
            // block then.
            led_.emplace_back(GroupBlock::bytes(static_cast<int>(ranks.size())), "comm_groups", *pool);
            std::byte* memory = led_.back().data();
            GroupBlock& block = GroupBlock::create(memory, group_name, ranks, occurrence);
            block.next = slot.groups_head.load(std::memory_order_relaxed);
            slot.groups_head.store(job->offset_of({memory, 1}), std::memory_order_release);
            slot.groups_changed.fetch_add(1);
            futex_wake_all(slot.groups_changed);
            return block;
        }
    }
    const auto deadline = Deadline::after_ms(timeout_ms.load());
    for (;;) {
        const std::uint32_t seen = slot.groups_changed.load();
        if (GroupBlock* block = find(leader, group_name, ranks, occurrence)) return *block;
        job->throw_if_aborted(phase);
        if (deadline.passed()) {
            const std::string late = "rank " + std::to_string(leader);
            job->abort(name(), phase + ": " + late + " did not join");
            throw DeadlineExceeded(late, phase, fmt::format("not there after {} ms", timeout_ms.load()));
        }
        futex_wait(slot.groups_changed, seen,
                   std::min<std::chrono::nanoseconds>(kNoticeAbort, deadline.left()));
    }
}

}  // namespace tandem::comm::ipc
