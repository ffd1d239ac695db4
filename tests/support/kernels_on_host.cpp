// Fibers by ucontext, one scheduler a thread of the host. A fiber runs until it reaches a barrier.
#include "tests/support/kernels_on_host.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <vector>

#include "common/error.h"

namespace fibers {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;

// Fibers that wait for each other: those of a warp, or of a block.
struct Barrier {
    int members = 0;
    int arrived = 0;
    unsigned generation = 0;

    void release_if_complete() {
        if (members > 0 && arrived < members) return;
        arrived = 0;
        ++generation;
    }
};

struct Warp {
    Barrier barrier;
    alignas(16) std::byte slots[32][16];
};

struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    Place place;
    const Barrier* waits_for = nullptr;
    unsigned generation = 0;
    bool done = false;
};

struct Block {
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Barrier barrier;
    std::vector<std::byte> shared;
    std::byte* shared_data = nullptr;
    ucontext_t scheduler;
    Fiber* running = nullptr;
    const std::function<void()>* kernel = nullptr;
    std::exception_ptr error;
};

thread_local Block block;

Warp& warp_of(const Fiber& fiber) {
    return block.warps[fiber.place.thread.x / 32];
}

void fiber_main() {
    Fiber& self = *block.running;
    try {
        (*block.kernel)();
    } catch (...) {
        block.error = std::current_exception();
    }
    self.done = true;
    for (Barrier* barrier : {&block.barrier, &warp_of(self).barrier}) {
        --barrier->members;
        if (barrier->arrived > 0) barrier->release_if_complete();
    }
    swapcontext(&self.context, &block.scheduler);
}

void arrive(Barrier& barrier) {
    Fiber& self = *block.running;
    self.waits_for = &barrier;
    self.generation = barrier.generation;
    ++barrier.arrived;
    barrier.release_if_complete();
    if (barrier.generation != self.generation) return;
    swapcontext(&self.context, &block.scheduler);
}

void start(Fiber& fiber) {
    if (!fiber.stack) fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
    fiber.waits_for = nullptr;
    fiber.done = false;
}

// One block, its fibers in the order i * stride + first (stride is odd, their number a power of two or any
// other: then 1).
void run_block(std::size_t threads, std::int64_t number) {
    const bool backwards = number % 2 == 1;
    for (bool left = true; left;) {
        left = false;
        bool moved = false;
        for (std::size_t i = 0; i < threads; ++i) {
            const std::size_t rotated = (i + static_cast<std::size_t>(number) * 7) % threads;
            Fiber& fiber = block.fibers[backwards ? threads - 1 - rotated : rotated];
            if (fiber.done) continue;
            left = true;
            if (fiber.waits_for && fiber.waits_for->generation == fiber.generation) continue;
            fiber.waits_for = nullptr;
            moved = true;
            block.running = &fiber;
            swapcontext(&block.scheduler, &fiber.context);
            if (block.error) return;
        }
        if (left && !moved) throw tandem::Error("threads of a block wait at barriers that never fill");
    }
}

}  // namespace

const Place& here() {
    return block.running->place;
}

void block_barrier() {
    arrive(block.barrier);
}

void warp_barrier() {
    arrive(warp_of(*block.running).barrier);
}

std::byte* exchange_slot(unsigned lane) {
    return warp_of(*block.running).slots[lane];
}

std::byte* shared_memory() {
    return block.shared_data;
}

void check_aligned(const void* pointer, std::size_t alignment) {
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0) return;
    std::fprintf(stderr, "a kernel accesses %zu bytes at %p\n", alignment, pointer);
    std::abort();
}

void run_blocks(std::int64_t blocks, int threads, std::size_t shared_bytes,
                const std::function<void()>& kernel) {
    const auto count = static_cast<std::size_t>(threads);
    if (block.fibers.size() < count) block.fibers.resize(count);
    block.kernel = &kernel;
    block.error = nullptr;
    block.shared.resize(shared_bytes + 16);
    const auto address = reinterpret_cast<std::uintptr_t>(block.shared.data());
    block.shared_data = block.shared.data() + (16 - address % 16) % 16;
    for (std::int64_t number = 0; number < blocks; ++number) {
        std::memset(block.shared.data(), 0xff, block.shared.size());  // NaNs: nobody counts on zeros
        block.warps.assign((count + 31) / 32, Warp{});
        block.barrier = {threads, 0, 0};
        for (std::size_t i = 0; i < count; ++i) {
            ++block.warps[i / 32].barrier.members;
            block.fibers[i].place = {{static_cast<unsigned>(i), 0, 0},
                                     {static_cast<unsigned>(number), 0, 0},
                                     {static_cast<unsigned>(count), 1, 1},
                                     {static_cast<unsigned>(blocks), 1, 1}};
            start(block.fibers[i]);
        }
        run_block(count, number);
        if (block.error) std::rethrow_exception(block.error);
    }
}

}  // namespace fibers
