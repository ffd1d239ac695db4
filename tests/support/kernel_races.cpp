#include "tests/support/kernel_races.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/kernel_places.h"
#include "tests/support/kernels_on_host.h"
#include "tests/support/kernels_on_host_counts.h"

extern "C" const char __executable_start[], __data_start[], _end[];  // by the linker

namespace fibers::races {
namespace {

constexpr std::uintptr_t kPageBytes = 4096;
constexpr std::size_t kWords = kPageBytes / 4;
constexpr std::size_t kCopyBytes = 16;
constexpr std::size_t kMostPages = 8192;  // then the shadow begins anew
constexpr std::size_t kFramesOfLaunch = 64 << 10;
constexpr std::size_t kMostReports = 4;
constexpr std::size_t kMostThreads = 1024;  // of a block

enum Many : std::uint8_t { one_thread, lanes_of_a_warp, warps };

// Phases are numbers that only grow: of a launch's blocks, which run one after the other, and within each of
// the stretches between its barriers. So a phase says which block it is of.
struct Access {
    std::uint32_t phase = 0, warp_phase = 0;
    std::uint32_t code = 0;  // from __executable_start
    std::uint16_t thread = 0;
    Many many = one_thread;
};

// Accesses that may stand side by side: the last phase's, and the last of another block.
struct Group {
    Access last, foreign;
};

struct Cell {
    Access write;
    Group reads, atomics;
};

// Cells of four bytes, until something touches less than four.
struct Page {
    std::vector<Access> copies;  // under way to its pieces of 16 bytes; empty: there never were any
    std::vector<Cell> cells = std::vector<Cell>(kWords);
    std::uint32_t scratch_since = 0;  // 0: no scratch memory
    bool unwritten(const Cell& cell) const {
        return cell.write.phase < scratch_since && cell.atomics.last.phase < scratch_since;
    }
    bool bytes() const { return cells.size() != kWords; }
    void split() {
        std::vector<Cell> all;
        all.reserve(kPageBytes);
        for (const Cell& cell : cells) all.insert(all.end(), 4, cell);
        cells = std::move(all);
    }
};

struct Range {
    std::uintptr_t begin = 0, end = 0;
    bool holds(std::uintptr_t at) const { return at >= begin && at < end; }
};

Range range_of(const void* begin, const void* end) {
    return {reinterpret_cast<std::uintptr_t>(begin), reinterpret_cast<std::uintptr_t>(end)};
}

struct State {
    bool running = false;
    std::uint32_t phase = 0;  // the newest of all
    std::uint32_t launch_begin = 0, block_begin = 0, block_phase = 0, warp_phase = 0;
    std::uint16_t thread = 0;
    Range stack, dynamic_shared;
    Range arguments;  // of the launch lie in frames of who launches
    const Range static_shared =
        range_of(__data_start, _end);  // of host variables kernels know only constants
    std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages;
    std::array<std::pair<std::uintptr_t, Page*>, 64> recent{};
    std::set<std::pair<std::uint32_t, std::uint32_t>> reported;
    std::string reports;
    Clocks clocks;
};

// Made when it is first asked for, found without asking whether it has been made.
thread_local constinit State* current_state = nullptr;

State& make_state() {
    static thread_local State made;
    current_state = &made;
    return made;
}

State& state() {
    return current_state != nullptr ? *current_state : make_state();
}

bool enabled = false;

Page& page_of(std::uintptr_t number) {
    auto& [known, page] = state().recent[number % state().recent.size()];
    if (page != nullptr && known == number) return *page;
    std::unique_ptr<Page>& slot = state().pages[number];
    if (!slot) slot = std::make_unique<Page>();
    known = number;
    page = slot.get();
    return *page;
}

// May `a` be at the same time as what the running thread does now? `from`: the first phase that counts.
[[gnu::always_inline]] inline bool unordered(const State& now, const Access& a, std::uint32_t from) {
    if (a.phase < from) return false;
    if (a.phase < now.block_begin) return true;
    if (a.phase != now.block_phase) return false;
    if (a.many == warps || a.thread / 32 != now.thread / 32) return true;
    if (a.warp_phase != now.warp_phase) return false;
    return a.many == lanes_of_a_warp || a.thread != now.thread;
}

void join(Group& group, const Access& now, std::uint32_t from) {
    Access& last = group.last;
    if (last.phase < from || last.phase != state().block_phase) {
        if (last.phase < from) {
            group.foreign = {};
        } else if (last.phase < state().block_begin) {
            group.foreign = last;
        }
        last = now;
    } else if (last.many == warps) {
        return;
    } else if (last.thread / 32 != state().thread / 32) {
        last.many = warps;
    } else if (last.warp_phase != state().warp_phase) {
        last = now;
    } else if (last.thread != state().thread) {
        last.many = lanes_of_a_warp;
    }
}

std::string threads_of(const Access& a) {
    if (state().clocks.beyond_threads(a.thread)) return "the asynchronous proxy";
    const char* const block = a.phase < state().block_begin ? "another block" : "the block";
    if (a.many == warps) return fmt::format("several warps of {}", block);
    if (a.many == lanes_of_a_warp) return fmt::format("several lanes of warp {} of {}", a.thread / 32, block);
    return fmt::format("thread {} of {}", a.thread, block);
}

void report(std::uintptr_t at, bool shared, const Access& now, const char* does, const Access* before,
            const char* did, const char* why = "with nothing between that orders them") {
    const std::uint32_t other = before == nullptr ? 0 : before->code;
    if (state().reported.size() >= kMostReports || !state().reported.emplace(now.code, other).second) return;
    state().reports += fmt::format("\nthread {} {} {} memory at {:#x}: {}", state().thread, does,
                                   shared ? "shared" : "global", at, place_of(__executable_start + now.code));
    if (before == nullptr) {
        state().reports += shared ? "\n  which the block has not written" : "\n  which nothing has written";
    } else {
        state().reports += fmt::format("\n  and {} {} it, {}: {}", threads_of(*before), did, why,
                                       place_of(__executable_start + other));
    }
}

const char* verb(Kind kind) {
    return kind == Kind::read ? "reads" : kind == Kind::write ? "writes" : "adds to";
}

void visit(const Page& page, Cell& cell, std::uintptr_t at, bool shared, Kind kind, const Access& now) {
    const std::uint32_t from = shared ? state().block_begin : state().launch_begin;
    const char* const does = verb(kind);
    const State& running = state();
    const auto meets = [&](const Access& before, const char* did) {
        if (unordered(running, before, from)) report(at, shared, now, does, &before, did);
    };
    const auto meets_group = [&](const Group& group, const char* did) {
        meets(group.last, did);
        meets(group.foreign, did);
    };
    meets(cell.write, "writes");
    if (kind != Kind::read) meets_group(cell.reads, "reads");
    if (kind != Kind::atomic) meets_group(cell.atomics, "adds to");
    const bool unwritten =
        shared ? cell.write.phase < from && cell.atomics.last.phase < from : page.unwritten(cell);
    if (unwritten && kind != Kind::write) report(at, shared, now, does, nullptr, "");
    if (kind == Kind::write) {
        cell.write = now;
    } else {
        join(kind == Kind::read ? cell.reads : cell.atomics, now, from);
    }
}

// Of accesses from before clocks came into use.
bool seen_by_clock(const Access& a) {
    if (a.many == warps) return state().clocks.has_seen_first(state().thread, 0, kMostThreads);
    if (a.many == lanes_of_a_warp)
        return state().clocks.has_seen_first(state().thread, std::size_t{a.thread} / 32 * 32, 32);
    return state().clocks.has_seen_first(state().thread, a.thread, 1);
}

void check_first(const Cell& cell, std::uintptr_t at, Kind kind, const Access& now) {
    const auto meets = [&](const Access& before, const char* did) {
        if (unordered(state(), before, state().block_begin) && !seen_by_clock(before))
            report(at, true, now, verb(kind), &before, did);
    };
    meets(cell.write, "writes");
    if (kind != Kind::read) meets(cell.reads.last, "reads");
    if (kind != Kind::atomic) meets(cell.atomics.last, "adds to");
}

// Whether the block has written there before clocks came into use.
bool written_first(std::uintptr_t at) {
    const Page& page = page_of(at / kPageBytes);
    return page.cells[at % kPageBytes / (page.bytes() ? 1 : 4)].write.phase >= state().block_begin;
}

Access access_of(const Event& event) {
    return {.phase = state().block_phase, .code = event.code, .thread = event.actor};
}

// Bytes [at, stop) of one word of shared memory. Atomics are those of mbarriers: they only need to find one.
void visit_by_clock(std::uintptr_t at, std::uintptr_t stop, Kind kind, const Access& now) {
    const std::uintptr_t word = at / 4;
    const auto bytes = static_cast<std::uint8_t>(((1u << (stop - at)) - 1) << at % 4);
    const Event event = state().clocks.event(state().thread, now.code, bytes);
    const Clock& clock = state().clocks.of(state().thread);
    const Clocks::Conflict conflict = kind == Kind::write ? state().clocks.write(word, event, clock)
                                                          : state().clocks.read(word, event, clock, false);
    if (conflict.did == nullptr) return;
    const Access before = access_of(conflict.before);
    report(at, true, now, verb(kind), &before, conflict.did, conflict.why);
}

std::uint32_t code_of(const void* code) {
    return static_cast<std::uint32_t>(static_cast<const char*>(code) - __executable_start);
}

Access access_of(const void* code) {
    return {state().block_phase, state().warp_phase, code_of(code), state().thread};
}

// Not of what a GPU has in its constants and registers: the launch's arguments, the thread's number.
void count(std::uintptr_t at, std::size_t bytes, Kind kind) {
    if (state().arguments.holds(at) || range_of(&here(), &here() + 1).holds(at)) return;
    if (kind != Kind::write) counts.bytes_read += static_cast<std::int64_t>(bytes);
    if (kind != Kind::read) counts.bytes_written += static_cast<std::int64_t>(bytes);
}

bool is_shared(std::uintptr_t at) {
    return state().dynamic_shared.holds(at) || state().static_shared.holds(at);
}

Access& copy_to(std::uintptr_t at) {
    Page& page = page_of(at / kPageBytes);
    if (page.copies.empty()) page.copies.resize(kPageBytes / kCopyBytes);
    return page.copies[at % kPageBytes / kCopyBytes];
}

// Are [at, stop) of this page free of copies of this block? Reports one if not.
bool free_of_copies(const Page& page, std::uintptr_t at, std::uintptr_t stop, const Access& now,
                    const char* does) {
    for (; at < stop; at = (at / kCopyBytes + 1) * kCopyBytes) {
        const Access& copy = page.copies[at % kPageBytes / kCopyBytes];
        if (copy.phase < state().block_begin) continue;
        report(at, true, now, does, &copy, "has a copy on its way to", "which it has not waited for");
        return false;
    }
    return true;
}

void visit_page_by_clock(const Page& page, std::uintptr_t at, std::uintptr_t stop, Kind kind,
                         const Access& now) {
    const std::uintptr_t step = page.bytes() ? 1 : 4;
    for (std::uintptr_t next; at < stop; at = next) {
        next = std::min(stop, (at / 4 + 1) * 4);
        const Cell& cell = page.cells[at % kPageBytes / step];
        check_first(cell, at, kind, now);
        const bool unwritten = !written_first(at) && !state().clocks.written(at / 4);
        if (unwritten && kind != Kind::write) report(at, true, now, verb(kind), nullptr, "");
        visit_by_clock(at, next, kind, now);
    }
}

// Calls f(page, cell) for the cells of memory that are scratch.
template <typename F>
void for_scratch(const void* memory, std::size_t bytes, const F& f) {
    auto at = reinterpret_cast<std::uintptr_t>(memory);
    for (const std::uintptr_t end = at + bytes; at < end;) {
        const std::uintptr_t stop = std::min(end, (at / kPageBytes + 1) * kPageBytes);
        const auto found = state().pages.find(at / kPageBytes);
        if (found != state().pages.end() && found->second->scratch_since > 0) {
            Page& page = *found->second;
            const std::uintptr_t step = page.bytes() ? 1 : 4;
            for (std::uintptr_t cell = at / step * step; cell < stop; cell += step)
                f(page, page.cells[cell % kPageBytes / step]);
        }
        at = stop;
    }
}

}  // namespace

void begin_scratch(const void* memory, std::size_t bytes) {
    if (!enabled || bytes == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    ++state().phase;
    for (std::uintptr_t page = begin / kPageBytes; page <= (begin + bytes - 1) / kPageBytes; ++page)
        page_of(page).scratch_since = state().phase;
}

void end_scratch(const void* memory, std::size_t bytes) {
    for_scratch(memory, bytes, [](Page& page, Cell&) { page.scratch_since = 0; });
}

void host_writes(const void* memory, std::size_t bytes) {
    for_scratch(memory, bytes, [](Page&, Cell& cell) { cell.write = {.phase = state().phase}; });
}

std::string host_reads(const void* memory, std::size_t bytes) {
    std::size_t unwritten = 0;
    for_scratch(memory, bytes, [&](Page& page, Cell& cell) { unwritten += page.unwritten(cell) ? 1U : 0U; });
    if (unwritten == 0) return {};
    return fmt::format("a copy of {} bytes of scratch memory reads some that nothing has written", bytes);
}

void enable() {
    enabled = true;
}

void begin_launch() {
    if (state().pages.size() > kMostPages) {
        state().pages.clear();
        state().recent = {};
    }
    state().launch_begin = ++state().phase;
    state().reported.clear();
    state().reports.clear();
    const auto* const frame = static_cast<const char*>(__builtin_frame_address(0));
    state().arguments = range_of(frame, frame + kFramesOfLaunch);
}

void begin_block(const std::byte* shared, std::size_t shared_bytes, std::size_t threads) {
    state().clocks.begin(threads);
    state().block_begin = state().block_phase = ++state().phase;
    state().dynamic_shared = range_of(shared, shared + shared_bytes);
}

void block_synchronized() {
    if (state().clocks.on()) state().clocks.synchronize(0, kMostThreads);
    state().block_phase = ++state().phase;
}

std::uint32_t warp_synchronized() {
    if (state().clocks.on()) state().clocks.synchronize(std::size_t{state().thread} / 32 * 32, 32);
    state().warp_phase = ++state().phase;
    return state().warp_phase;
}

void resume(unsigned thread, std::uint32_t warp_phase, const std::byte* stack, std::size_t stack_bytes) {
    state().thread = static_cast<std::uint16_t>(thread);
    state().warp_phase = warp_phase;
    state().stack = range_of(stack, stack + stack_bytes);
    state().running = true;
}

void pause() {
    state().running = false;
}

bool found() {
    return !state().reports.empty();
}

std::string end_launch() {
    return std::exchange(state().reports, {});
}

void touched(const void* pointer, std::size_t bytes, Kind kind, const void* code) {
    if (!enabled || !state().running) return;
    auto at = reinterpret_cast<std::uintptr_t>(pointer);
    if (state().stack.holds(at)) return;
    const bool shared = is_shared(at);
    if (!shared) count(at, bytes, kind);
    const Access now = access_of(code);
    const bool words = at % 4 == 0 && bytes % 4 == 0;
    for (const std::uintptr_t end = at + bytes; at < end;) {
        Page& page = page_of(at / kPageBytes);
        if (!words && !page.bytes()) page.split();
        const std::uintptr_t step = page.bytes() ? 1 : 4;
        const std::uintptr_t stop = std::min(end, (at / kPageBytes + 1) * kPageBytes);
        if (!page.copies.empty() && !free_of_copies(page, at, stop, now, verb(kind))) return;
        if (shared && state().clocks.on()) {
            visit_page_by_clock(page, at, stop, kind, now);
            at = stop;
            continue;
        }
        for (; at < stop; at += step) visit(page, page.cells[at % kPageBytes / step], at, shared, kind, now);
    }
}

void copy_begins(const void* to, const void* code) {
    touched(to, kCopyBytes, Kind::write, code);
    if (enabled) copy_to(reinterpret_cast<std::uintptr_t>(to)) = access_of(code);
}

void copy_ends(const void* to, const void* code) {
    if (enabled) copy_to(reinterpret_cast<std::uintptr_t>(to)) = {};
    touched(to, kCopyBytes, Kind::write, code);
}

std::uint16_t new_actor() {
    return state().clocks.new_actor();
}

void copy_arrives(const void* to, const Actor& actor, const void* code) {
    if (!enabled) return;
    const auto at = reinterpret_cast<std::uintptr_t>(to);
    copy_to(at) = {};
    const Event event{actor.epoch, code_of(code), actor.number, 0xf};
    for (std::uintptr_t word = at / 4; word < (at + kCopyBytes) / 4; ++word)
        state().clocks.wrote(word, event);
}

Clock seen_by_warp() {
    return state().clocks.seen_by_all(std::size_t{state().thread} / 32 * 32, 32);
}

void read_by(const Actor& actor, const void* pointer, std::size_t bytes, const Clock& seen,
             const void* code) {
    if (!enabled) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
    const Access now = access_of(code);
    if (const Page& page = page_of(begin / kPageBytes);
        !page.copies.empty() && !free_of_copies(page, begin, begin + bytes, now, "reads"))
        return;
    const Event event{actor.epoch, now.code, actor.number, 0xf};
    for (std::uintptr_t at = begin; at < begin + bytes; at += 4) {
        if (!state().clocks.written(at / 4) && !written_first(at))
            report(at, true, now, "reads", nullptr, "");
        const Clocks::Conflict conflict = state().clocks.read(at / 4, event, seen, true);
        if (conflict.did == nullptr) continue;
        const Access before = access_of(conflict.before);
        report(at, true, now, "reads by a product", &before, conflict.did, conflict.why);
    }
}

void use_clocks() {
    state().clocks.turn_on();
}

void release_into(Clock& to) {
    state().clocks.release_into(to, state().thread);
}

void acquire(const Clock& from) {
    state().clocks.acquire(from, state().thread);
}

void fence_proxies() {
    state().clocks.fence_proxies(state().thread);
}

bool in_shared_memory(const void* pointer, std::size_t bytes) {
    const auto at = reinterpret_cast<std::uintptr_t>(pointer);
    return is_shared(at) && is_shared(at + bytes - 1);
}

}  // namespace fibers::races
