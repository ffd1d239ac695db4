// Time that has passed, by the steady clock.
#pragma once

#include <chrono>

namespace tandem {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double ms_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Runs from its construction on.
class Stopwatch {
  public:
    double seconds() const { return seconds_since(start_); }
    double ms() const { return ms_since(start_); }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tandem
