// Whether staging is written through the last-level cache, from which the engine then reads it, or past it. Through is
// faster where writer and reader share that cache and takes twice as long where they do not, and a virtual machine whose
// cores move knows one state in one minute and the other in the next (cores.h). So each push goes the way that took less
// time when it was last tried in the state of now; the second push in a state tries the other way, and later ones try it
// again now and then, since one push beside other work says nothing. Bits do not depend on it.
#pragma once

#include <algorithm>
#include <array>

#include "sync/cost/cores.h"

namespace tandem::sync {

class CachePath {
  public:
    // `past`: how to begin in a state. `both`: false where only that will do, as for staging that no cache holds.
    CachePath(bool past, bool both) : both_(both) { ways_.fill({past, {}}); }

    static constexpr int kAgain = 8,
                         kAtMost = 64;  // pushes until the other way is tried again, doubled each time

    void begin(Cores cores, bool past) {
        if (both_ && ways_[index(cores)].took_ms == std::array<double, 2>{}) ways_[index(cores)].past = past;
    }
    bool past(Cores cores) const { return ways_[index(cores)].past; }
    // Whether the next push goes the faster way, and not the other to see what that takes.
    bool settled(Cores cores) const {
        const Way& way = ways_[index(cores)];
        const bool tries = way.trying && way.pushes == 0;
        return !both_ || (way.took_ms[0] > 0 && way.took_ms[1] > 0 && !tries);
    }
    // A push went this way, in so many milliseconds.
    void took(Cores cores, double ms) {
        Way& way = ways_[index(cores)];
        way.took_ms[way.past ? 1 : 0] = ms;
        if (!both_) return;
        const bool other_is_faster = way.took_ms[way.past ? 0 : 1] < ms;
        const bool again = !other_is_faster && ++way.pushes >= way.wait;
        if (!other_is_faster && !again) return;
        if (again) way.wait = std::min(2 * way.wait, kAtMost);
        if (other_is_faster && !way.trying) way.wait = kAgain;
        way.trying = again;
        way.pushes = 0;
        way.past = !way.past;
    }

  private:
    struct Way {
        bool past = false;
        std::array<double, 2> took_ms{};  // [past]; 0: not tried
        int pushes = 0;                   // this way since the other was tried
        int wait = kAgain;                // so many, then it is tried again
        bool trying = false;
    };
    static std::size_t index(Cores cores) { return static_cast<std::size_t>(cores); }
    bool both_;
    std::array<Way, kCoresStates> ways_;
};

}  // namespace tandem::sync
