// Bars on a common time line, a row each: where the time of one thing went, and what runs beside it.
#pragma once

#include <string>
#include <vector>

namespace tandem::chart {

struct Span {
    std::string label;  // in the bar where it fits, and in its tooltip
    int color = 0;      // 0 … 7
    double start = 0;
    double length = 0;
    bool hollow = false;  // an outline: predicted or theoretical, not measured
};

struct Row {
    std::string label;
    std::string text;  // to the right of the last span: "12.3 ms"
    std::vector<Span> spans;
};

struct Timeline {
    std::string title;
    std::string note;
    std::string unit = "ms";
    std::vector<Row> rows;
    std::vector<double> marks;  // dashed verticals through all rows
};

std::string timeline_chart(const Timeline& timeline);

}  // namespace tandem::chart
