#include "common/chart/timeline.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/chart/frame.h"
#include "common/chart/text.h"

namespace tandem::chart {
namespace {

// Room for the rows' labels at the left and for their figures at the right.
constexpr double kLabels = 104, kFigures = 72, kRow = 27, kBar = 18, kAxis = 36;
constexpr double kLetter = 6.4;  // width of one, for what fits into a bar

struct Scale {
    double low, high;
    double x(double value) const {
        return kLabels + (value - low) / (high - low) * (kWidth - kLabels - kFigures);
    }
};

std::string bar(const Span& span, const Scale& scale, double top, const std::string& unit) {
    const double left = scale.x(span.start), width = scale.x(span.start + span.length) - left;
    std::string out = fmt::format(
        "<rect class='{}{}' x='{:.1f}' y='{:.1f}' width='{:.2f}' height='{}' rx='2'>"
        "<title>{}: {} {}</title></rect>",
        span.hollow ? "hollow s" : "b", span.color, left, top, std::max(width, 0.8), kBar,
        escape_html(span.label), short_number(span.length), escape_html(unit));
    if (static_cast<double>(span.label.size()) * kLetter + 12 < width) {
        out +=
            fmt::format("<text class='{}' x='{:.1f}' y='{:.1f}'>{}</text>", span.hollow ? "tick" : "inside",
                        left + 6, top + kBar - 5, escape_html(span.label));
    }
    return out;
}

}  // namespace

std::string timeline_chart(const Timeline& timeline) {
    double low = 0, high = 0;
    for (const Row& row : timeline.rows) {
        for (const Span& span : row.spans) {
            low = std::min(low, span.start);
            high = std::max(high, span.start + span.length);
        }
    }
    if (!(high > low)) return card(timeline.title, "nothing was recorded", "");
    const Scale scale{low, high};
    const double bottom = kRow * static_cast<double>(timeline.rows.size()) + 4;
    std::string body;
    const auto vertical = [&](const char* kind, double value) {
        body += fmt::format("<line class='{}' x1='{:.1f}' x2='{:.1f}' y1='0' y2='{}'/>", kind, scale.x(value),
                            scale.x(value), bottom);
    };
    for (const double tick : nice_ticks(low, high, 6)) {
        if (tick < low || tick > high) continue;
        vertical("grid", tick);
        body += fmt::format("<text class='tick' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                            scale.x(tick), bottom + 14, short_number(tick));
    }
    double top = 4;
    for (const Row& row : timeline.rows) {
        double end = low;
        body += fmt::format("<text class='row' x='0' y='{:.1f}'>{}</text>", top + kBar - 5,
                            escape_html(row.label));
        for (const Span& span : row.spans) {
            body += bar(span, scale, top, timeline.unit);
            end = std::max(end, span.start + span.length);
        }
        body += fmt::format("<text class='tick' x='{:.1f}' y='{:.1f}'>{}</text>", scale.x(end) + 6,
                            top + kBar - 5, escape_html(row.text));
        top += kRow;
    }
    for (const double mark : timeline.marks) vertical("mark", mark);
    body += fmt::format("<text class='axis' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                        (kLabels + kWidth - kFigures) / 2, bottom + 31, escape_html(timeline.unit));
    return card(timeline.title, timeline.note, svg(timeline.title, bottom + kAxis, body));
}

}  // namespace tandem::chart
