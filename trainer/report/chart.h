// Charts as inline SVG: lines over steps, stacked columns, horizontal bars. Colours are CSS classes s0 … s5,
// so one page style serves light and dark. Text is escaped here.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tandem::trainer {

struct Series {
    std::string label;
    int color = 0;  // 0 … 5
    std::vector<std::pair<double, double>> points;
    enum class Style { line, faint, dots } style = Style::line;
};

struct Chart {
    std::string title;
    std::string note;  // one line under the title
    std::string x_label = "step";
    std::string unit;  // of y: "ms"; may be empty
    std::vector<Series> series;
    bool from_zero = true;
    double y_max = 0;  // 0: from the data
};

std::string line_chart(const Chart& chart);
// One column for each x, the series on top of one another. All series have the same x values.
std::string stacked_chart(const Chart& chart);

struct Bar {
    std::string label;
    double value = 0;
    std::string text;  // "1.2 MiB"
};
std::string bar_chart(const std::string& title, const std::string& note, const std::vector<Bar>& bars);

// The series as a faint line, and a bold exponential average of it.
std::vector<Series> smoothed(const std::string& label, int color,
                             const std::vector<std::pair<double, double>>& points, double keep);

std::string escape_html(const std::string& text);
std::vector<double> nice_ticks(double low, double high, int about);  // round numbers that cover the range
std::string short_number(double value);                              // "0.25", "1.2k", "3e-7"
std::string bytes_text(double bytes);                                // "1.5 MiB"

}  // namespace tandem::trainer
