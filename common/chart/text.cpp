#include "common/chart/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace tandem::chart {

std::vector<double> nice_ticks(double low, double high, int about) {
    // A range that is only rounding would need ticks closer than doubles are.
    const double size = std::max(std::abs(low), std::abs(high));
    if (!(high - low > 1e-9 * size)) high = low + (size == 0 ? 1 : size);
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

std::vector<double> log2_ticks(double low, double high, int at_most) {
    const auto first = static_cast<int>(std::floor(std::log2(low) + 1e-9));
    const auto last = static_cast<int>(std::ceil(std::log2(high) - 1e-9));
    const int step = std::max(1, (last - first + at_most - 1) / at_most);
    std::vector<double> ticks;
    for (int power = first; power <= last; power += step) ticks.push_back(std::exp2(power));
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

}  // namespace tandem::chart
