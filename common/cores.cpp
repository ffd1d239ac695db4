#include "common/cores.h"

#include <algorithm>

namespace tandem {

std::vector<int> usable_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(static_cast<std::size_t>(core), &set)) cores.push_back(core);
    }
    return cores;
}

bool stay_on(int core) {
    const std::vector<int> usable = usable_cores();
    if (std::find(usable.begin(), usable.end(), core) == usable.end()) return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(core), &one);
    return ::sched_setaffinity(0, sizeof(one), &one) == 0;
}

OnCore::OnCore(int core) {
    if (core >= 0 && ::sched_getaffinity(0, sizeof(before_), &before_) == 0) stays_ = stay_on(core);
}

OnCore::~OnCore() {
    if (stays_) ::sched_setaffinity(0, sizeof(before_), &before_);
}

}  // namespace tandem
