#include "tests/support/kernels_on_host_barriers.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "common/error.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernel_places.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"

namespace fibers {
namespace {

using races::place_of;

constexpr unsigned kNamed = 16;
constexpr int kMostArrivals = (1 << 20) - 1;

struct Named {
    unsigned threads = 0, arrived = 0, generation = 0;
    races::Clock open, held;  // what those brought that have arrived; what the last generation brought
};

struct MBarrier {
    int expected = 0, pending = 0;
    std::int64_t bytes = 0;  // that copies still have to bring
    unsigned phase = 0;
    races::Clock open, held;  // of this phase so far; of the one before
    std::uint16_t actor = 0;
};

struct Barriers {
    Named named[kNamed];
    std::map<std::uintptr_t, MBarrier> mbarriers;
};

thread_local Barriers barriers;

// Whether the generation is complete.
bool arrives(unsigned id, unsigned threads, const void* site) {
    if (id == 0 || id >= kNamed)
        throw tandem::Error(fmt::format("named barriers are 1 to 15, not {}: {}", id, place_of(site)));
    if (threads == 0 || threads % 32 != 0)
        throw tandem::Error(
            fmt::format("{} threads at a barrier, not whole warps: {}", threads, place_of(site)));
    races::use_clocks();
    Named& named = barriers.named[id];
    if (named.arrived > 0 && named.threads != threads) {
        throw tandem::Error(fmt::format("barrier {} of {} threads, while others say {}: {}", id, threads,
                                        named.threads, place_of(site)));
    }
    named.threads = threads;
    races::release_into(named.open);
    if (++named.arrived < threads) return false;
    named.arrived = 0;
    ++named.generation;
    named.held = std::exchange(named.open, {});
    return true;
}

MBarrier& mbarrier_at(std::uintptr_t address, const void* site) {
    const auto found = barriers.mbarriers.find(address);
    if (found == barriers.mbarriers.end())
        throw tandem::Error(fmt::format("no mbarrier has been made at {:#x}: {}", address, place_of(site)));
    races::touched(reinterpret_cast<const void*>(address), 8, races::Kind::read, site);
    return found->second;
}

void end_phase_if_complete(MBarrier& barrier) {
    if (barrier.pending > 0 || barrier.bytes != 0) return;
    ++barrier.phase;
    barrier.pending = barrier.expected;
    barrier.held = std::exchange(barrier.open, {});
}

void arrive_once(MBarrier& barrier, const void* site) {
    if (barrier.pending == 0)
        throw tandem::Error("more arrivals at an mbarrier than it was made for: " + place_of(site));
    races::release_into(barrier.open);
    --barrier.pending;
    end_phase_if_complete(barrier);
}

}  // namespace

void begin_barriers() {
    for (Named& named : barriers.named) {
        if (named.threads > 0) named = {};
    }
    barriers.mbarriers.clear();
}

void end_barriers() {
    for (const Named& named : barriers.named) counts.arrivals_left += named.arrived;
}

void check_mbarrier(std::uintptr_t mbarrier, const void* site) {
    mbarrier_at(mbarrier, site);
}

races::Actor actor_of(std::uintptr_t mbarrier) {
    const MBarrier& barrier = barriers.mbarriers.at(mbarrier);
    return {barrier.actor, barrier.phase + 1};
}

void bytes_arrive(std::uintptr_t mbarrier, std::size_t bytes, const races::Actor& actor) {
    MBarrier& barrier = barriers.mbarriers.at(mbarrier);
    barrier.bytes -= static_cast<std::int64_t>(bytes);
    barrier.open.see(actor);
    end_phase_if_complete(barrier);
}

void meet(unsigned id, unsigned threads) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::named_barrier, site)) return;
    const unsigned before = barriers.named[id % kNamed].generation;
    if (!arrives(id, threads, site)) {
        wait_until(
            {[=] { return barriers.named[id].generation != before; },
             [=] { return fmt::format("barrier {} of {} threads: {}", id, threads, place_of(site)); }});
    }
    races::acquire(barriers.named[id].held);
}

void arrive_at(unsigned id, unsigned threads) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::named_barrier, site)) return;
    arrives(id, threads, site);
}

void init_mbarrier(std::uintptr_t address, unsigned arrivals) {
    const void* const site = __builtin_return_address(0);
    const auto count = static_cast<int>(arrivals);
    if (address % 8 != 0 || !races::in_shared_memory(reinterpret_cast<const void*>(address), 8)) {
        throw tandem::Error(
            fmt::format("an mbarrier is 8 bytes of shared memory at a multiple of 8, not at {:#x}: {}",
                        address, place_of(site)));
    }
    if (count < 1 || count > kMostArrivals)
        throw tandem::Error(fmt::format("an mbarrier for {} arrivals: {}", arrivals, place_of(site)));
    races::use_clocks();
    races::touched(reinterpret_cast<const void*>(address), 8, races::Kind::write, site);
    barriers.mbarriers[address] = {
        .expected = count, .pending = count, .open = {}, .held = {}, .actor = races::new_actor()};
}

void arrive(std::uintptr_t address) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::mbarrier_arrival, site)) return;
    arrive_once(mbarrier_at(address, site), site);
}

void arrive_expecting(std::uintptr_t address, unsigned bytes) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::mbarrier_arrival, site)) return;
    MBarrier& barrier = mbarrier_at(address, site);
    barrier.bytes += bytes;
    arrive_once(barrier, site);
}

void wait_for(std::uintptr_t address, unsigned parity) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::mbarrier_wait, site)) return;
    const MBarrier& barrier = mbarrier_at(address, site);
    wait_until({[&] { return barrier.phase % 2 != parity; },
                [&] {
                    return fmt::format(
                        "parity {} of the mbarrier at {:#x}, which is in phase {} and lacks {} "
                        "arrivals and {} bytes: {}",
                        parity, address, barrier.phase, barrier.pending, barrier.bytes, place_of(site));
                }});
    races::acquire(barrier.held);
}

void fence_proxies() {
    if (left_out(LeftOut::proxy_fence, __builtin_return_address(0))) return;
    races::fence_proxies();
}

}  // namespace fibers
