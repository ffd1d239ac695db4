// A self-contained page around charts: no network, no scripts; light and dark, on screen and on paper.
#pragma once

#include <string>

namespace tandem::chart {

// The parts are HTML already; titles and texts are escaped here.
std::string page(const std::string& title, const std::string& body);
std::string section(const std::string& title, const std::string& charts);
// A figure with its name above and a line below; `good` colours it, `bad` warns.
enum class Tone { plain, good, bad };
std::string tile(const std::string& label, const std::string& value, const std::string& note,
                 Tone tone = Tone::plain);
std::string tiles(const std::string& several);

}  // namespace tandem::chart
