// Warnings of what strangers can cause as often as they like: at most one line a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

// For one thread.
class RareWarnings {
  public:
    explicit RareWarnings(std::string who) : who_(std::move(who)) {}

    // "who: what", and how many went before it without a line.
    void say(std::string_view what);

  private:
    std::string who_;
    std::optional<std::chrono::steady_clock::time_point> last_;
    std::size_t left_out_ = 0;
};

}  // namespace tandem
