// Spans of time for a Chrome trace (chrome://tracing, Perfetto): what was done, by which rank, from when to
// when. Thread-safe; recording is off until enabled and then costs a clock read and a short lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::trace {

void enable(const std::string& process_name, int process_id);  // process_id: the rank, or 1000 for the engine
bool enabled();

// Records [construction, destruction) of a scope.
class Scope {
  public:
    Scope(std::string_view name, std::string_view category);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    std::string name_;
    std::string category_;
    std::int64_t start_us_ = -1;
};

// While one lives, the scopes of its thread record nothing.
class Muted {
  public:
    Muted();
    ~Muted();
    Muted(const Muted&) = delete;
    Muted& operator=(const Muted&) = delete;
};

// Takes what was recorded so far, as a JSON array of events (Chrome's "traceEvents"). Timestamps are
// microseconds of CLOCK_MONOTONIC, so traces of several processes of one host line up.
std::string take_json();

}  // namespace tandem::trace
