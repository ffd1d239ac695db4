// Kernels on the host with one thing left out, for tests that show that nobody could leave it out unnoticed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace fibers {

enum class LeftOut {
    nothing,
    block_barrier,
    warp_barrier,
    wait,        // for copies ahead
    last_group,  // of those that a wait waits for: it lets one more be pending
    commit,      // of copies ahead
    named_barrier,
    mbarrier_arrival,
    mbarrier_wait,
    proxy_fence,
    product_fence,  // of warpgroups, as the next
    product_commit,
    product_wait,
    last_product_group,
};

struct Survivors {
    std::size_t places = 0;             // in the sources of kernels that have such a thing
    std::vector<std::string> survived;  // those whose absence `run` did not report
};
// Calls `run`, which throws when something is wrong, once for each place where kernels do `what`, as they do it
// nowhere in that place, and at last once with nothing left out: what it throws then is thrown on. Blocks.
Survivors leave_out(LeftOut what, const std::function<void()>& run);

// Whether the running mutation leaves out `what` at `site`.
bool left_out(LeftOut what, const void* site);

// Whether leave_out is running: the first report is as good as all of them.
bool leaving_out();

}  // namespace fibers
