// Shared by all charts: the drawing area, its axes and ticks, the card around it.
#pragma once

#include <string>
#include <vector>

#include "common/chart/chart.h"

namespace tandem::chart {

// The drawing area inside a fixed view box; the page scales the whole picture.
inline constexpr double kWidth = 560, kHeight = 250, kLeft = 76, kRight = 14, kTop = 12, kBottom = 40;

struct Axes {
    double x_low, x_high;
    bool x_log2 = false;
    std::vector<double> x_ticks, y_ticks;

    double x(double value) const;
    double y(double value) const;
};

Axes make_axes(const Chart& chart, double x_low, double x_high, double y_low, double y_high);
std::string frame(const Axes& axes, const Chart& chart);  // grid, ticks and labels

std::string legend(const std::vector<Series>& series);  // of those that have a label
std::string svg(const std::string& title, double height, const std::string& body);
std::string card(const std::string& title, const std::string& note, const std::string& body);

}  // namespace tandem::chart
