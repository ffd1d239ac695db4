// The cores that a thread may run on, and a thread that stays on one of them for a while.
#pragma once

#include <sched.h>

#include <vector>

namespace tandem {

std::vector<int> usable_cores();  // of the calling thread, growing; empty: the system does not say

// The calling thread stays on a core from here on. False: it may not use that one, and is left as it is.
bool stay_on(int core);

// The calling thread stays on a core while this lives, and may then go where it could before. A core that it may not use,
// or a negative one, leaves it as it is.
class OnCore {
  public:
    explicit OnCore(int core);
    ~OnCore();
    OnCore(const OnCore&) = delete;
    OnCore& operator=(const OnCore&) = delete;

  private:
    bool stays_ = false;
    cpu_set_t before_;
};

}  // namespace tandem
