#include "common/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/stopwatch.h"

namespace tandem {

std::string format_seconds(double seconds) {
    if (seconds < 60) return fmt::format("{:.1f} s", seconds);
    const auto whole = static_cast<std::int64_t>(seconds + 0.5);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(std::string label, std::int64_t total, std::FILE* out)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      out_(out),
      terminal_(isatty(fileno(out)) == 1) {}

Progress::~Progress() {
    if (open_line_) std::fputc('\n', out_);
}

std::string Progress::line(std::int64_t done, const std::string& note) const {
    const double elapsed = seconds_since(start_);
    const double rate = elapsed > 0 ? static_cast<double>(done - start_done_) / elapsed : 0;
    std::string bar;
    if (terminal_) {
        constexpr std::int64_t kWidth = 24;
        const std::int64_t filled = kWidth * done / total_;
        for (std::int64_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
        bar += " ";
    }
    std::string result =
        fmt::format("{:<6} {}{:>{}}/{}", label_, bar, done, std::to_string(total_).size(), total_);
    if (rate > 0) result += fmt::format("  {:.1f}/s", rate);
    if (rate > 0 && done < total_) {
        result += fmt::format("  {} left", format_seconds(static_cast<double>(total_ - done) / rate));
    }
    return note.empty() ? result : result + "  " + note;
}

void Progress::update(std::int64_t done, const std::string& note) {
    const auto now = Clock::now();
    if (start_done_ < 0) {
        start_ = now;
        start_done_ = done;
    }
    const auto interval =
        terminal_ ? Clock::duration(std::chrono::milliseconds(100)) : Clock::duration(kPlainInterval);
    const bool last = done >= total_;
    if (!last && now - last_ < interval) return;
    last_ = now;
    if (terminal_) {
        fmt::print(out_, "\r\033[K{}", line(done, note));
        open_line_ = !last;
        if (last) std::fputc('\n', out_);
    } else {
        fmt::print(out_, "{}\n", line(done, note));
    }
    std::fflush(out_);
}

}  // namespace tandem
