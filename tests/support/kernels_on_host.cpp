// One scheduler a thread of the host. A fiber runs until it reaches a barrier that others have not.
#include "tests/support/kernels_on_host.h"
#include "tests/support/kernel_places.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/error.h"
#include "tests/support/fiber_switch.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"

namespace fibers {
namespace {

using races::place_of;

constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kMostAligned = 1024;  // of shared memory, that any kernel asks for

// Fibers that wait for each other: those of a warp, or of a block.
struct Barrier {
    int members = 0;
    int arrived = 0;
    unsigned generation = 0;
    const void* site = nullptr;  // of the code where the first one waits
    bool orders = true;          // memory; shuffles do not
};

// What a shuffle hands over. Two of them: a lane can be one shuffle ahead of another, not two.
struct Slots {
    std::uint64_t values[32];
    unsigned generations[32];  // when the value was given
};

struct Warp {
    Barrier barrier;
    Slots slots[2] = {};
    std::uint32_t phase = 0;  // of the racecheck
};

struct Fiber {
    Flow flow;
    std::unique_ptr<std::byte[]> stack;
    Place place;
    Warp* warp = nullptr;
    const Barrier* waits_for = nullptr;
    unsigned generation = 0;
    const Until* until = nullptr;  // it waits for
    bool done = false;
    bool waits() const {
        return waits_for != nullptr ? waits_for->generation == generation
                                    : until != nullptr && !until->over();
    }
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barrier;
    std::vector<std::byte> shared;
    std::byte* shared_data = nullptr;
    Flow scheduler;
    Fiber* running = nullptr;
    const std::function<void()>* kernel = nullptr;
    std::exception_ptr error;
};

// Made when it is first asked for, found without asking whether it has been made.
thread_local constinit Block* current_block = nullptr;

Block& make_block() {
    static thread_local Block made;
    current_block = &made;
    return made;
}

Block& block() {
    return current_block != nullptr ? *current_block : make_block();
}

void release(Barrier& barrier) {
    barrier.arrived = 0;
    ++barrier.generation;
    if (&barrier == &block().barrier) {
        races::block_synchronized();
    } else if (barrier.orders) {
        block().running->warp->phase = races::warp_synchronized();
    }
}

void stop(bool ends) {
    races::pause();
    go_on(block().running->flow, block().scheduler, ends);
}

void fiber_main() {
    arrived(block().scheduler);
    Fiber& self = *block().running;
    try {
        (*block().kernel)();
        end_copies();
    } catch (...) {
        block().error = std::current_exception();
    }
    self.done = true;
    for (Barrier* barrier : {&block().barrier, &self.warp->barrier}) {
        --barrier->members;
        if (barrier->arrived > 0 && barrier->arrived == barrier->members) release(*barrier);
    }
    stop(true);
}

// Calls `last()` when all others have arrived.
template <typename Last>
void arrive(Barrier& barrier, const void* site, bool orders, const char* what, const Last& last) {
    Fiber& self = *block().running;
    if (barrier.arrived == 0) {
        barrier.site = site;
        barrier.orders = orders;
    }
    // Compilers of the host may make two barriers of one, which stay one place in the sources.
    if (barrier.site != site && place_of(barrier.site) != place_of(site)) {
        throw tandem::Error(
            fmt::format("{} at {}\nwhile others are at {}", what, place_of(site), place_of(barrier.site)));
    }
    self.generation = barrier.generation;
    if (++barrier.arrived == barrier.members) {
        last();
        return release(barrier);
    }
    self.waits_for = &barrier;
    stop(false);
}

void nothing() {}

template <typename Last>
void meet_lanes(unsigned mask, const void* site, bool orders, const Last& last) {
    if (mask != 0xffffffffu) throw tandem::Error("kernels on the host know the mask of all lanes only");
    arrive(block().running->warp->barrier, site, orders, "a lane of a warp", last);
}

// A shuffle or a vote: what the lanes gave, and which of them `turn` says that they gave it now.
struct Given {
    const Slots& slots;
    unsigned turn;
    bool from(unsigned lane) const { return slots.generations[lane] == turn; }
    bool from_all() const {
        return std::all_of(slots.generations, slots.generations + 32,
                           [&](unsigned given) { return given == turn; });
    }
};

// Calls `last(given)` when all lanes have given theirs.
template <typename Last>
Given give(unsigned mask, std::uint64_t mine, const void* site, const Last& last) {
    const Fiber& self = *block().running;
    const unsigned turn = self.warp->barrier.generation + 1;
    Slots& slots = self.warp->slots[turn % 2];
    const unsigned lane = self.place.thread.x % 32;
    slots.values[lane] = mine;
    slots.generations[lane] = turn;
    const Given given{slots, turn};
    meet_lanes(mask, site, false, [&] { last(given); });
    return given;
}

Given give(unsigned mask, std::uint64_t mine, const void* site) {
    return give(mask, mine, site, [](const Given&) {});
}

void start(Fiber& fiber) {
    if (!fiber.stack) fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    fiber.flow = new_flow(fiber.stack.get(), kStackBytes, fiber_main);
    fiber.waits_for = nullptr;
    fiber.until = nullptr;
    fiber.done = false;
}

void begin_block(std::int64_t number, std::int64_t blocks, std::size_t threads, std::size_t shared_bytes) {
    std::memset(block().shared.data(), 0xff, block().shared.size());  // NaNs: nobody counts on zeros
    races::begin_block(block().shared_data, shared_bytes, threads);
    begin_copies(threads);
    begin_barriers();
    begin_products();
    begin_bulk(static_cast<std::size_t>(number));
    block().warps.assign((threads + 31) / 32, Warp{});
    block().barrier = Barrier{.members = static_cast<int>(threads)};
    for (std::size_t i = 0; i < threads; ++i) {
        Fiber& fiber = block().fibers[i];
        fiber.warp = &block().warps[i / 32];
        ++fiber.warp->barrier.members;
        fiber.place = {{static_cast<unsigned>(i), 0, 0},
                       {static_cast<unsigned>(number), 0, 0},
                       {static_cast<unsigned>(threads), 1, 1},
                       {static_cast<unsigned>(blocks), 1, 1}};
        start(fiber);
    }
}

void resume(Fiber& fiber) {
    block().running = &fiber;
    races::resume(fiber.place.thread.x, fiber.warp->phase, fiber.stack.get(), kStackBytes);
    go_on(block().scheduler, fiber.flow);
}

bool found_enough() {
    return leaving_out() && races::found();
}

// What those wait for that say so.
std::string waiting(std::size_t threads) {
    std::string all;
    int told = 0;
    for (std::size_t i = 0; i < threads; ++i) {
        const Fiber& fiber = block().fibers[i];
        if (fiber.done || fiber.until == nullptr) continue;
        if (++told > 4) return all + "\nand so on";
        all += fmt::format("\nthread {} waits for {}", fiber.place.thread.x, fiber.until->what());
    }
    return all;
}

// One block, its fibers in an order that changes with its number.
void run_block(std::size_t threads, std::int64_t number) {
    const bool backwards = number % 2 == 1;
    for (bool left = true; left;) {
        left = false;
        bool moved = false;
        for (std::size_t i = 0; i < threads; ++i) {
            const std::size_t rotated = (i + static_cast<std::size_t>(number) * 7) % threads;
            Fiber& fiber = block().fibers[backwards ? threads - 1 - rotated : rotated];
            if (fiber.done) continue;
            left = true;
            if (fiber.waits()) continue;
            fiber.waits_for = nullptr;
            fiber.until = nullptr;
            moved = true;
            resume(fiber);
            if (block().error || found_enough()) return;
        }
        if (left && !moved && !end_one_bulk())
            throw tandem::Error("threads of a block wait at barriers that never fill" + waiting(threads));
    }
}

}  // namespace

const Place& here() {
    return block().running->place;
}

void block_barrier() {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::block_barrier, site)) return;
    arrive(block().barrier, site, true, "a thread of a block", nothing);
}

void warp_barrier(unsigned mask) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::warp_barrier, site)) return;
    meet_lanes(mask, site, true, nothing);
}

std::uint64_t exchange_bits(unsigned mask, std::uint64_t mine, unsigned from) {
    const void* const site = __builtin_return_address(0);
    const Given given = give(mask, mine, site);
    if (!given.from(from % 32))
        throw tandem::Error("a lane takes a value from one that has ended: " + place_of(site));
    return given.slots.values[from % 32];
}

void together(void* operands, void (*perform)(const std::uint64_t* operands), const void* site) {
    const Given given =
        give(0xffffffffu, reinterpret_cast<std::uint64_t>(operands), site, [&](const Given& all) {
            if (all.from_all()) perform(all.slots.values);
        });
    if (!given.from_all())
        throw tandem::Error("an instruction of all lanes, of which some have ended: " + place_of(site));
}

unsigned ballot(unsigned mask, bool mine) {
    const Given given = give(mask, mine ? 1 : 0, __builtin_return_address(0));
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (given.from(lane) && given.slots.values[lane] != 0) bits |= 1u << lane;
    }
    return bits;
}

void wait_until(const Until& until) {
    if (until.over()) return;
    block().running->until = &until;
    stop(false);
}

std::byte* shared_memory() {
    return block().shared_data;
}

void check_aligned(const void* pointer, std::size_t alignment) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return;
    std::fprintf(stderr, "a kernel accesses %zu bytes at %p\n", alignment, pointer);
    std::abort();
}

void run_blocks(std::int64_t blocks, int threads, std::size_t shared_bytes,
                const std::function<void()>& kernel) {
    const auto count = static_cast<std::size_t>(threads);
    if (block().fibers.size() < count) block().fibers.resize(count);
    block().kernel = &kernel;
    block().error = nullptr;
    // Aligned to 16 bytes and to no more: a kernel that wants more has to see to it.
    block().shared.resize(shared_bytes + kMostAligned);
    const auto address = reinterpret_cast<std::uintptr_t>(block().shared.data());
    block().shared_data = block().shared.data() + (kMostAligned + 16 - address % kMostAligned) % kMostAligned;
    ++counts.launches;
    races::begin_launch();
    std::string failed;
    try {
        for (std::int64_t number = 0; number < blocks; ++number) {
            begin_block(number, blocks, count, shared_bytes);
            run_block(count, number);
            if (block().error) std::rethrow_exception(block().error);
            if (found_enough()) break;
            end_barriers();
            end_products();
            end_bulk();
        }
    } catch (const tandem::Error& error) {
        failed = error.what();
    }
    const std::string found = races::end_launch();
    if (!found.empty()) failed += (failed.empty() ? "racecheck:" : "\nracecheck:") + found;
    if (!failed.empty()) throw tandem::Error(failed);
}

}  // namespace fibers
