#include "common/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "common/console.h"
#include "common/stopwatch.h"
#include "common/wrap.h"

namespace tandem {

namespace {

// A terminal that goes back to a line's begin and clears it.
bool obeys(std::FILE* out) {
    const char* const kind = std::getenv("TERM");
    return isatty(fileno(out)) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

std::int64_t columns_of(std::FILE* out) {
    winsize size{};
    return ::ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string format_seconds(double seconds) {
    if (seconds < 60) return fmt::format("{:.1f} s", seconds);
    const auto whole = static_cast<std::int64_t>(seconds + 0.5);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

Progress::Progress(std::string label, std::int64_t total, std::FILE* out)
    : label_(std::move(label)), total_(std::max<std::int64_t>(total, 1)), out_(out), terminal_(obeys(out)) {}

Progress::~Progress() {
    if (open_line_) std::fputc('\n', out_);
}

std::string Progress::words(std::int64_t done, const std::string& note) const {
    const double elapsed = seconds_since(start_);
    const double rate = elapsed > 0 ? static_cast<double>(done - start_done_) / elapsed : 0;
    std::string result = fmt::format("{:>{}}/{}", done, std::to_string(total_).size(), total_);
    if (rate > 0) result += fmt::format("  {:.1f}/s", rate);
    if (rate > 0 && done < total_) {
        result += fmt::format("  {} left", format_seconds(static_cast<double>(total_ - done) / rate));
    }
    return note.empty() ? result : result + "  " + note;
}

// A line that the terminal broke could not be written over: the bar gives way, then what stands last.
std::string Progress::terminal_line(std::int64_t done, const std::string& note) const {
    constexpr std::int64_t kWidest = 24, kNarrowest = 6;
    const auto length = [](const std::string& part) { return static_cast<std::int64_t>(characters(part)); };
    const std::int64_t columns = columns_of(out_) - 1;  // the cursor stands behind the last one
    std::string text = words(done, note);
    const std::string label = fmt::format("{:<6} ", label_);
    const std::int64_t room = columns - length(label) - length(text) - 1;
    std::string bar;
    if (room >= kNarrowest) {
        const std::int64_t width = std::min(kWidest, room), filled = width * done / total_;
        for (std::int64_t i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
        bar += " ";
    }
    text = label + bar + text;
    while (length(text) > columns) text.pop_back();
    return text;
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
        tell(out_, "\r\033[K" + terminal_line(done, note) + (last ? "\n" : ""));
        open_line_ = !last;
    } else {
        tell(out_, fmt::format("{:<6} {}\n", label_, words(done, note)));
    }
}

}  // namespace tandem
