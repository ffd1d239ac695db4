// Copies ahead, at the worst moment allowed: until a thread waits for a copy its target holds what nobody wants,
// and the racecheck knows that nobody may touch it; then the thread moves the bytes.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "common/error.h"
#include "tests/support/kernel_mutations.h"
#include "tests/support/kernel_places.h"
#include "tests/support/kernel_races.h"
#include "tests/support/kernels_on_host.h"
#include "tests/support/kernels_on_host_counts.h"
#include "tests/support/kernels_on_host_rules.h"

namespace fibers {
namespace {

struct Copy {
    std::byte* to;
    const std::byte* from;  // null: zeros
    std::byte source[16];   // as it was at first
    const void* site;
};

// Of a thread, in order, those that have not been moved.
struct Thread {
    std::vector<Copy> copies;
    std::vector<std::size_t> groups;  // how many copies each has
    std::size_t open = 0;             // copies of no group yet
};

thread_local std::vector<Thread> of_threads;

Thread& mine() {
    return of_threads[here().thread.x];
}

void move(const Copy& copy, const void* site) {
    races::copy_ends(copy.to, site);
    if (copy.from == nullptr) {
        std::memset(copy.to, 0, 16);
        return;
    }
    if (std::memcmp(copy.source, copy.from, 16) != 0) {
        throw tandem::Error(fmt::format("the source of a copy has changed under way, from {} to {}",
                                        races::place_of(copy.site), races::place_of(site)));
    }
    std::memcpy(copy.to, copy.from, 16);
}

}  // namespace

void begin_copies(std::size_t threads) {
    if (of_threads.size() < threads) of_threads.resize(threads);
    for (Thread& thread : of_threads) {
        thread.copies.clear();
        thread.groups.clear();
        thread.open = 0;
    }
}

void end_copies() {
    const Thread& thread = mine();
    if (thread.copies.empty()) return;
    throw tandem::Error(fmt::format("thread {} ends with {} copies on their way, the first from {}",
                                    here().thread.x, thread.copies.size(),
                                    races::place_of(thread.copies.front().site)));
}

void copy_ahead(std::uintptr_t to, const void* from, bool there) {
    const void* const site = __builtin_return_address(0);
    auto* const target = reinterpret_cast<std::byte*>(to);
    check_shared_row(target, "a copy's target", site);
    check_multiple_of_16(from, "a copy's source", site);
    ++counts.copies;
    Copy copy{target, there ? static_cast<const std::byte*>(from) : nullptr, {}, site};
    if (there) {
        races::touched(from, 16, races::Kind::read, site);
        std::memcpy(copy.source, from, 16);
    }
    races::copy_begins(target, site);
    std::memset(target, 0xff, 16);  // NaNs
    mine().copies.push_back(copy);
    ++mine().open;
}

void commit_ahead() {
    if (left_out(LeftOut::commit, __builtin_return_address(0))) return;
    mine().groups.push_back(std::exchange(mine().open, 0));
}

void wait_ahead(int pending) {
    const void* const site = __builtin_return_address(0);
    if (left_out(LeftOut::wait, site)) return;
    if (left_out(LeftOut::last_group, site)) ++pending;
    Thread& thread = mine();
    const auto over = static_cast<std::ptrdiff_t>(thread.groups.size()) - pending;
    if (over <= 0) return;
    const auto groups = thread.groups.begin();
    const auto copies = thread.copies.begin();
    const auto moved = std::accumulate(groups, groups + over, std::ptrdiff_t{0});
    std::for_each(copies, copies + moved, [&](const Copy& copy) { move(copy, site); });
    thread.groups.erase(groups, groups + over);
    thread.copies.erase(copies, copies + moved);
}

}  // namespace fibers
