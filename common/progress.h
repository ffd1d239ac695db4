// The progress of a long job: a bar with rate and time left on a terminal, in one line of it; a plain line now and then
// elsewhere, and where TERM is "dumb".
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace tandem {

// Writes to `out` (stderr by default) from one thread. Ends its line when destroyed.
class Progress {
  public:
    Progress(std::string label, std::int64_t total, std::FILE* out = stderr);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    // `done` of total; `note` goes to the right of it ("reward 0.83"). Writes at most ten times a second on a
    // terminal, and every `kPlainInterval` elsewhere; the last step is always written.
    void update(std::int64_t done, const std::string& note = {});

    static constexpr std::chrono::seconds kPlainInterval{5};

  private:
    std::string words(std::int64_t done, const std::string& note) const;
    std::string terminal_line(std::int64_t done, const std::string& note) const;

    using Clock = std::chrono::steady_clock;
    std::string label_;
    std::int64_t total_;
    std::FILE* out_;
    bool terminal_;
    Clock::time_point start_{};  // of the first update: what came before it does not count for the rate
    std::int64_t start_done_ = -1;
    Clock::time_point last_{};
    bool open_line_ = false;
};

std::string format_seconds(double seconds);  // "4.2 s", "3 min 05 s", "1 h 02 min"

}  // namespace tandem
