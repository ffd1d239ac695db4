#include "trainer/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace tandem::trainer {
namespace {

// The drawing area inside a fixed view box; the page scales the whole picture.
constexpr double kWidth = 560, kHeight = 250, kLeft = 76, kRight = 14, kTop = 12, kBottom = 40;

struct Axes {
    double x_low, x_high;
    std::vector<double> x_ticks, y_ticks;

    double x(double value) const {
        const double span = x_high > x_low ? x_high - x_low : 1;
        return kLeft + (value - x_low) / span * (kWidth - kLeft - kRight);
    }
    double y(double value) const {
        const double low = y_ticks.front(), high = y_ticks.back();
        return kHeight - kBottom - (value - low) / (high - low) * (kHeight - kTop - kBottom);
    }
};

Axes make_axes(double x_low, double x_high, double y_low, double y_high) {
    Axes axes{x_low, x_high, {}, nice_ticks(y_low, y_high, 5)};
    for (const double tick : nice_ticks(x_low, x_high, 6)) {
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
        out += fmt::format("<text class='tick' x='{:.1f}' y='{}' text-anchor='middle'>{}</text>",
                           axes.x(tick), kHeight - kBottom + 17, short_number(tick));
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

std::string legend(const Chart& chart) {
    std::string out;
    for (const Series& series : chart.series) {
        if (series.label.empty()) continue;
        out += fmt::format("<span><i class='k{}'></i>{}</span>", series.color, escape_html(series.label));
    }
    return out.empty() ? out : "<div class='legend'>" + out + "</div>";
}

std::string card(const std::string& title, const std::string& note, const std::string& body) {
    const std::string small = note.empty() ? "" : fmt::format("<p class='note'>{}</p>", escape_html(note));
    return fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>\n", escape_html(title), small, body);
}

std::string svg(const std::string& title, const std::string& body) {
    return fmt::format("<svg viewBox='0 0 {} {}' role='img' aria-label='{}'>{}</svg>", kWidth, kHeight,
                       escape_html(title), body);
}

std::string drawn(const Series& series, const Axes& axes) {
    std::string out;
    if (series.style == Series::Style::dots) {
        for (const auto& [x, y] : series.points) {
            out += fmt::format(
                "<circle class='d{}' cx='{:.1f}' cy='{:.1f}' r='4.5'><title>{} {}: {}</title></circle>",
                series.color, axes.x(x), axes.y(y), escape_html(series.label), short_number(x),
                short_number(y));
        }
        return out;
    }
    for (const auto& [x, y] : series.points) out += fmt::format("{:.1f},{:.1f} ", axes.x(x), axes.y(y));
    const bool faint = series.style == Series::Style::faint;
    return fmt::format("<polyline class='s{}{}' points='{}'/>", series.color, faint ? " faint" : "", out);
}

struct Extent {
    double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
    void add(double value) {
        low = std::min(low, value);
        high = std::max(high, value);
    }
};

}  // namespace

std::string line_chart(const Chart& chart) {
    Extent x, y;
    for (const Series& series : chart.series) {
        for (const auto& point : series.points) {
            x.add(point.first);
            y.add(point.second);
        }
    }
    if (x.low > x.high) return card(chart.title, "nothing was recorded", "");
    if (chart.from_zero) y.add(0);
    if (chart.y_max > 0) y.add(chart.y_max);
    const Axes axes = make_axes(x.low, x.high, y.low, y.high);
    std::string body = frame(axes, chart);
    for (const Series& series : chart.series) body += drawn(series, axes);
    return card(chart.title, chart.note, legend(chart) + svg(chart.title, body));
}

std::string stacked_chart(const Chart& chart) {
    if (chart.series.empty() || chart.series[0].points.empty())
        return card(chart.title, "nothing was recorded", "");
    const std::size_t columns = chart.series[0].points.size();
    std::vector<double> total(columns, 0);
    for (const Series& series : chart.series) {
        for (std::size_t i = 0; i < columns; ++i) total[i] += series.points[i].second;
    }
    const double first = chart.series[0].points.front().first, last = chart.series[0].points.back().first;
    const Axes axes = make_axes(first - 0.5, last + 0.5, 0, *std::max_element(total.begin(), total.end()));
    const double width = std::max(1.0, 0.82 * (axes.x(first + 1) - axes.x(first)));
    std::string body = frame(axes, chart);
    std::vector<double> base(columns, 0);
    for (const Series& series : chart.series) {
        for (std::size_t i = 0; i < columns; ++i) {
            const auto& [x, value] = series.points[i];
            const double top = axes.y(base[i] + value);
            body += fmt::format(
                "<rect class='b{}' x='{:.1f}' y='{:.2f}' width='{:.1f}' height='{:.2f}'>"
                "<title>{} {}: {} {} {}</title></rect>",
                series.color, axes.x(x) - width / 2, top, width, axes.y(base[i]) - top,
                escape_html(chart.x_label), short_number(x), escape_html(series.label), short_number(value),
                escape_html(chart.unit));
            base[i] += value;
        }
    }
    return card(chart.title, chart.note, legend(chart) + svg(chart.title, body));
}

std::string bar_chart(const std::string& title, const std::string& note, const std::vector<Bar>& bars) {
    double most = 0;
    for (const Bar& bar : bars) most = std::max(most, bar.value);
    std::string body;
    for (const Bar& bar : bars) {
        body += fmt::format(
            "<div class='bar'><span>{}</span><div><b style='width:{:.2f}%'></b></div><em>{}</em></div>",
            escape_html(bar.label), most > 0 ? 100 * bar.value / most : 0, escape_html(bar.text));
    }
    return card(title, note, "<div class='bars'>" + body + "</div>");
}

std::vector<Series> smoothed(const std::string& label, int color,
                             const std::vector<std::pair<double, double>>& points, double keep) {
    Series average{label, color, points, Series::Style::line};
    double weight = 0, sum = 0;  // bias-corrected
    for (auto& [x, y] : average.points) {
        weight = keep * weight + 1 - keep;
        sum = keep * sum + (1 - keep) * y;
        y = sum / weight;
    }
    return {{"", color, points, Series::Style::faint}, std::move(average)};
}

std::vector<double> nice_ticks(double low, double high, int about) {
    if (!(high > low)) high = low + (low == 0 ? 1 : std::abs(low));
    const double raw = (high - low) / about;
    const double magnitude = std::pow(10, std::floor(std::log10(raw)));
    double step = 10 * magnitude;
    for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
        if (raw <= factor * magnitude * (1 + 1e-9)) {
            step = factor * magnitude;
            break;
        }
    }
    std::vector<double> ticks;
    const double first = std::floor(low / step + 1e-9);
    for (double i = first; ticks.empty() || ticks.back() < high - step * 1e-9; ++i) ticks.push_back(i * step);
    return ticks;
}

std::string short_number(double value) {
    const double size = std::abs(value);
    if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.2g}", value);
    if (size >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
    return fmt::format("{:.4g}", value);
}

std::string bytes_text(double bytes) {
    const char* unit = "B";
    for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
        if (bytes < 1024) break;
        bytes /= 1024;
        unit = next;
    }
    return fmt::format("{:.3g} {}", bytes, unit);
}

std::string escape_html(const std::string& text) {
    static const std::map<char, std::string> kEntities = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    std::string result;
    for (const char c : text) {
        const auto it = kEntities.find(c);
        it == kEntities.end() ? result += c : result += it->second;
    }
    return result;
}

}  // namespace tandem::trainer
