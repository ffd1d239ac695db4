// Whether staging is written through the last-level cache, from which the engine then reads it, or past it. Through is a
// little faster where writer and reader share that cache and takes twice as long where they do not, and a virtual machine
// whose cores move knows one state in one minute and the other in the next. So each push goes the way that took less time
// when it was last tried; the second push tries the other one. Bits do not depend on it.
#pragma once

#include <array>

namespace tandem::sync {

class CachePath {
  public:
    // `both`: false where only the first will do, as for staging that no cache holds.
    CachePath(bool past, bool both) : past_(past), both_(both) {}

    bool past() const { return past_; }
    // A push went this way, in so many milliseconds.
    void took(double ms) {
        took_ms_[past_ ? 1 : 0] = ms;
        if (both_ && took_ms_[past_ ? 0 : 1] < ms) past_ = !past_;
    }

  private:
    bool past_;
    bool both_;
    std::array<double, 2> took_ms_{};  // [past]; 0: not tried
};

}  // namespace tandem::sync
