// Charts as inline SVG: lines, dots, stacked columns, horizontal bars. Colours are CSS classes s0 … s5
// (style.h), so one page style serves light and dark. Text is escaped here.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::chart {

struct Series {
    std::string label;
    int color = 0;  // 0 … 7
    std::vector<std::pair<double, double>> points;
    enum class Style { line, faint, dashed, dots, marked } style = Style::line;  // marked: line and dots
};

struct Chart {
    std::string title;
    std::string note;  // one line under the title
    std::string x_label = "step";
    std::string unit;  // of y: "ms"; may be empty
    std::vector<Series> series;
    bool from_zero = true;
    double y_max = 0;      // 0: from the data
    bool x_log2 = false;   // x > 0 then, with ticks at powers of two
    bool x_whole = false;  // ticks at whole numbers only
    bool x_bytes = false;  // x ticks as "64 MiB"
};

std::string line_chart(const Chart& chart);
// One column for each x, the series on top of one another. All series have the same x values.
std::string stacked_chart(const Chart& chart);

struct Bar {
    std::string label;
    double value = 0;
    std::string text;  // "1.2 MiB"
    int color = 0;
};
std::string bar_chart(const std::string& title, const std::string& note, const std::vector<Bar>& bars);

// The series as a faint line, and a bold exponential average of it.
std::vector<Series> smoothed(const std::string& label, int color,
                             const std::vector<std::pair<double, double>>& points, double keep);

}  // namespace tandem::chart
