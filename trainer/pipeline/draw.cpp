#include "trainer/pipeline/draw.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

#include "common/chart/text.h"
#include "common/error.h"

namespace tandem::pipeline {
namespace {

// Pixels.
constexpr double kLeft = 64, kRight = 76, kTop = 72, kBottom = 46, kRow = 30, kCell = 24;
constexpr double kLetter = 6.6;  // width of a digit

struct Color {
    int red, green, blue;
};

struct Look {
    ActionKind kind;
    const char* name;
    Color color;
};

// The charts' colours (common/chart/style.h).
constexpr std::array<Look, 4> kLooks = {{
    {ActionKind::forward, "forward", {0x2f, 0x6f, 0xd6}},
    {ActionKind::full_backward, "backward", {0xd0, 0x78, 0x10}},
    {ActionKind::backward_input, "input gradient", {0x1f, 0x9d, 0x78}},
    {ActionKind::backward_weight, "weight gradient", {0x82, 0x57, 0xd8}},
}};

const Look& look_of(ActionKind kind) {
    return *std::find_if(kLooks.begin(), kLooks.end(), [&](const Look& look) { return look.kind == kind; });
}

// pale: 0 … 1, towards white.
std::string hex(const Color& color, double pale) {
    const auto mixed = [&](int part) { return static_cast<int>(part + (255 - part) * pale + 0.5); };
    return fmt::format("#{:02x}{:02x}{:02x}", mixed(color.red), mixed(color.green), mixed(color.blue));
}

class Picture {
  public:
    explicit Picture(const Timing& timing) : timing_(timing), scale_(pixels_a_unit(timing)) {}

    double width() const { return std::max(720.0, x(timing_.makespan) + kRight); }
    double height() const { return kTop + kRow * static_cast<double>(timing_.ranks.size()) + kBottom; }

    std::string heading(const std::string& title) const {
        std::string out = text("title", 16, 26, title);
        double left = 16;
        for (const Look& look : kLooks) {
            if (!is_used(look.kind)) continue;
            out += fmt::format("<rect x='{:.1f}' y='40' width='12' height='12' rx='2' fill='{}'/>", left,
                               hex(look.color, 0));
            out += text("note", left + 18, 50, look.name);
            left += 40 + kLetter * static_cast<double>(std::string(look.name).size());
        }
        if (has_later_stages()) out += text("note", left, 50, "paler: later stages of a rank");
        return out;
    }

    std::string rows() const {
        std::string out;
        for (std::size_t rank = 0; rank < timing_.ranks.size(); ++rank) {
            const double top = kTop + kRow * static_cast<double>(rank);
            out += text("row", 16, top + 17, fmt::format("rank {}", rank));
            out += fmt::format("<rect class='idle' x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{}'/>", x(0),
                               top, x(timing_.makespan) - x(0), kCell);
            const auto& intervals = timing_.ranks[rank];
            std::set<int> stages;
            for (const Interval& interval : intervals) stages.insert(interval.action.stage);
            for (const Interval& interval : intervals) {
                const auto later = std::distance(stages.begin(), stages.find(interval.action.stage));
                const double pale = 0.6 * static_cast<double>(later) /
                                    static_cast<double>(std::max<std::size_t>(1, stages.size() - 1));
                out += cell(interval, top, stages.size() > 1 ? pale : 0);
            }
            out +=
                text("note", x(timing_.makespan) + 8, top + 17, fmt::format("peak {}", timing_.peak[rank]));
        }
        return out;
    }

    std::string axis(const std::string& unit) const {
        const double bottom = height() - kBottom + 2;
        std::string out;
        for (const double tick : chart::nice_ticks(0, timing_.makespan, 8)) {
            if (tick > timing_.makespan) continue;
            out += fmt::format("<line class='tick' x1='{0:.1f}' x2='{0:.1f}' y1='{1:.1f}' y2='{2:.1f}'/>",
                               x(tick), bottom - 4, bottom + 2);
            out += fmt::format("<text class='note' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>",
                               x(tick), bottom + 15, chart::short_number(tick));
        }
        return out + text("note", x(0), bottom + 32, unit.empty() ? "time" : "time, " + unit);
    }

  private:
    // So that three actions of four can bear a number, within reason.
    static double pixels_a_unit(const Timing& timing) {
        constexpr double kLeast = 18, kNarrowest = 640, kWidest = 8000;
        std::vector<double> lengths;
        for (const auto& intervals : timing.ranks)
            for (const Interval& interval : intervals)
                if (interval.end > interval.start) lengths.push_back(interval.end - interval.start);
        const auto quarter = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 4);
        std::nth_element(lengths.begin(), quarter, lengths.end());
        return std::clamp(kLeast / *quarter, kNarrowest / timing.makespan, kWidest / timing.makespan);
    }

    double x(double time) const { return kLeft + time * scale_; }

    bool is_used(ActionKind kind) const {
        for (const auto& intervals : timing_.ranks)
            for (const Interval& interval : intervals)
                if (interval.action.kind == kind) return true;
        return false;
    }

    bool has_later_stages() const {
        const auto& intervals = timing_.ranks[0];
        return std::any_of(intervals.begin(), intervals.end(), [&](const Interval& interval) {
            return interval.action.stage != intervals[0].action.stage;
        });
    }

    std::string cell(const Interval& interval, double top, double pale) const {
        const double left = x(interval.start), width = x(interval.end) - left;
        const std::string number = std::to_string(interval.action.microbatch);
        std::string out = fmt::format(
            "<rect x='{:.2f}' y='{:.1f}' width='{:.2f}' height='{}' fill='{}'><title>{}: {} to "
            "{}</title></rect>",
            left, top, std::max(0.0, width - 0.8), kCell, hex(look_of(interval.action.kind).color, pale),
            to_string(interval.action), chart::short_number(interval.start),
            chart::short_number(interval.end));
        if (kLetter * static_cast<double>(number.size()) + 3 <= width)
            out += fmt::format("<text class='{}' x='{:.2f}' y='{:.1f}' text-anchor='middle'>{}</text>",
                               pale < 0.35 ? "on-dark" : "on-pale", left + width / 2, top + 16, number);
        return out;
    }

    static std::string text(const char* kind, double x, double y, const std::string& words) {
        return fmt::format("<text class='{}' x='{:.1f}' y='{:.1f}'>{}</text>", kind, x, y,
                           chart::escape_html(words));
    }

    const Timing& timing_;
    double scale_;  // pixels a unit of time
};

constexpr const char* kStyle =
    "text{font-family:system-ui,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:11px;fill:#1b2330}"
    ".title{font-size:15px;font-weight:600}.note{fill:#647084}.row{font-size:12px}"
    ".on-dark{fill:#ffffff}.on-pale{fill:#1b2330}.idle{fill:#eef1f5}.tick{stroke:#9aa5b5}";

}  // namespace

std::string svg_of(const Timing& timing, const std::string& title, const std::string& unit) {
    constexpr std::size_t kMostActions = 50'000;
    std::size_t actions = 0;
    for (const auto& intervals : timing.ranks) actions += intervals.size();
    enforce(actions <= kMostActions,
            "a picture shows at most {} actions, and these are {}; choose fewer micro-batches", kMostActions,
            actions);
    enforce(timing.makespan > 0, "there is nothing to draw: all times are 0");
    const Picture picture(timing);
    return fmt::format(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} "
        "{1:.0f}'>\n"
        "<style>{2}</style>\n<rect width='100%' height='100%' fill='#ffffff'/>\n{3}\n{4}\n{5}\n</svg>\n",
        picture.width(), picture.height(), kStyle, picture.heading(title), picture.rows(),
        picture.axis(unit));
}

}  // namespace tandem::pipeline
