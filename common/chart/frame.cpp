#include "common/chart/frame.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "common/chart/text.h"

namespace tandem::chart {

double Axes::x(double value) const {
    const auto place = [&](double v) { return x_log2 ? std::log2(v) : v; };
    const double span = x_high > x_low ? place(x_high) - place(x_low) : 1;
    return kLeft + (place(value) - place(x_low)) / span * (kWidth - kLeft - kRight);
}

double Axes::y(double value) const {
    const double low = y_ticks.front(), high = y_ticks.back();
    return kHeight - kBottom - (value - low) / (high - low) * (kHeight - kTop - kBottom);
}

Axes make_axes(const Chart& chart, double x_low, double x_high, double y_low, double y_high) {
    Axes axes{x_low, x_high, chart.x_log2, {}, nice_ticks(y_low, y_high, 5)};
    for (const double tick : chart.x_log2 ? log2_ticks(x_low, x_high, 8) : nice_ticks(x_low, x_high, 6)) {
        if (chart.x_whole && tick != std::floor(tick)) continue;
        if (tick >= x_low && tick <= x_high) axes.x_ticks.push_back(tick);
    }
    return axes;
}

std::string frame(const Axes& axes, const Chart& chart) {
    std::string out;
    for (const double tick : axes.y_ticks) {
        const double y = axes.y(tick);
        out += fmt::format("<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/>", kLeft,
                           kWidth - kRight, y, y);
        out += fmt::format("<text class='tick' x='{}' y='{:.1f}' text-anchor='end'>{}</text>", kLeft - 7,
                           y + 4, short_number(tick));
    }
    for (const double tick : axes.x_ticks) {
        const std::string text = chart.x_bytes ? bytes_text(tick) : short_number(tick);
        const double half = 3.3 * static_cast<double>(text.size());  // a label must not leave the picture
        out += fmt::format("<text class='tick' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                           std::min(axes.x(tick), kWidth - half), kHeight - kBottom + 17, text);
    }
    out += fmt::format("<text class='axis' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                       (kLeft + kWidth - kRight) / 2, kHeight - 6, escape_html(chart.x_label));
    if (!chart.unit.empty()) {
        const double middle = (kTop + kHeight - kBottom) / 2;
        out += fmt::format(
            "<text class='axis' transform='translate(13 {:.1f}) rotate(-90)' text-anchor='middle'>{}</text>",
            middle, escape_html(chart.unit));
    }
    return out;
}

std::string legend(const std::vector<Series>& series) {
    std::string out;
    for (const Series& one : series) {
        if (one.label.empty()) continue;
        out += fmt::format("<span><i class='k{}{}'></i>{}</span>", one.color,
                           one.style == Series::Style::dashed ? " thin" : "", escape_html(one.label));
    }
    return out.empty() ? out : "<div class='legend'>" + out + "</div>";
}

std::string svg(const std::string& title, double height, const std::string& body) {
    return fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>{}</svg>", kWidth, height,
                       escape_html(title), body);
}

std::string card(const std::string& title, const std::string& note, const std::string& body) {
    const std::string small = note.empty() ? "" : fmt::format("<p class='note'>{}</p>", escape_html(note));
    return fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>\n", escape_html(title), small, body);
}

}  // namespace tandem::chart
