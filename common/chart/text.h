// Numbers and text as charts and pages show them.
#pragma once

#include <string>
#include <vector>

namespace tandem::chart {

std::string escape_html(const std::string& text);
std::vector<double> nice_ticks(double low, double high, int about);  // round numbers that cover the range
// Powers of two from the one at or below `low` on; as many as cover the range, thinned to `at_most` steps.
std::vector<double> log2_ticks(double low, double high, int at_most);
std::string short_number(double value);  // "0.25", "1.2k", "3e-7"
std::string bytes_text(double bytes);    // "1.5 MiB"

}  // namespace tandem::chart
