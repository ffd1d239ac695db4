// Threads on which memory is counted and nothing is computed: how much a program would take is found by running it there.
// A tensor has its shape, its tag and an address of its own; streams drop their work; ops (common/ops) return when they have
// checked their arguments; every GPU that is asked for is there. The CPU's memory reads as zeros, or as what the host
// itself wrote there: only pages that the host touches become real.
#pragma once

#include <functional>

namespace tandem {

namespace detail {
extern constinit thread_local bool t_only_counts;
}

// Whether the calling thread is such a one. Cheap.
inline bool only_counts() {
    return detail::t_only_counts;
}

// Runs `body` on a new thread that only counts; blocks until it has ended and rethrows what it threw. Its statistics
// (memory_stats, MemoryPhase and the like) are of that thread alone, and start at zero; nothing that it made may outlive it.
void run_counting(const std::function<void()>& body);

}  // namespace tandem
