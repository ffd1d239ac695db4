// A table on a page; cells may be shaded by a value, which makes it a heat map that can be read.
#pragma once

#include <string>
#include <vector>

namespace tandem::chart {

struct Cell {
    std::string text;
    double heat = -1;  // 0 … 1: faint to strong; below 0: not shaded
    bool best = false;
};

struct Table {
    std::string title;
    std::string note;
    std::vector<std::string> header;      // [column]; the first is of the rows' names
    std::vector<std::vector<Cell>> rows;  // [row][column]
};

std::string table_card(const Table& table);

}  // namespace tandem::chart
