#include "common/chart/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "common/chart/frame.h"
#include "common/chart/text.h"

namespace tandem::chart {
namespace {

std::string dots(const Chart& chart, const Series& series, const Axes& axes) {
    std::string out;
    for (const auto& [x, y] : series.points) {
        out += fmt::format(
            "<circle class='d{}' cx='{:.1f}' cy='{:.1f}' r='4.5'><title>{} {}: {}</title></circle>",
            series.color, axes.x(x), axes.y(y), escape_html(series.label),
            chart.x_bytes ? bytes_text(x) : short_number(x), short_number(y));
    }
    return out;
}

std::string drawn(const Chart& chart, const Series& series, const Axes& axes) {
    if (series.style == Series::Style::dots) return dots(chart, series, axes);
    std::string path;
    for (const auto& [x, y] : series.points) path += fmt::format("{:.1f},{:.1f} ", axes.x(x), axes.y(y));
    const char* kind = series.style == Series::Style::faint    ? " faint"
                       : series.style == Series::Style::dashed ? " dashed"
                                                               : "";
    path = fmt::format("<polyline class='s{}{}' points='{}'/>", series.color, kind, path);
    return series.style == Series::Style::marked ? path + dots(chart, series, axes) : path;
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
    const Axes axes = make_axes(chart, x.low, x.high, y.low, y.high);
    std::string body = frame(axes, chart);
    for (const Series& series : chart.series) body += drawn(chart, series, axes);
    return card(chart.title, chart.note, legend(chart.series) + svg(chart.title, kHeight, body));
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
    const Axes axes =
        make_axes(chart, first - 0.5, last + 0.5, 0, *std::max_element(total.begin(), total.end()));
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
    return card(chart.title, chart.note, legend(chart.series) + svg(chart.title, kHeight, body));
}

std::string bar_chart(const std::string& title, const std::string& note, const std::vector<Bar>& bars) {
    double most = 0;
    for (const Bar& bar : bars) most = std::max(most, bar.value);
    std::string body;
    for (const Bar& bar : bars) {
        body += fmt::format(
            "<div class='bar'><span>{}</span><div><b class='k{}' style='width:{:.2f}%'></b></div>"
            "<em>{}</em></div>",
            escape_html(bar.label), bar.color, most > 0 ? 100 * bar.value / most : 0, escape_html(bar.text));
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

}  // namespace tandem::chart
