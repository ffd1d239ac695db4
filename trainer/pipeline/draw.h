// A schedule as a picture: ranks are rows, time runs to the right.
#pragma once

#include <string>

#include "trainer/pipeline/simulate.h"

namespace tandem::pipeline {

// A whole SVG file, with its own colours: forward, backward, and a backward's two halves; a rank's later stages are paler. Cells
// bear micro-batches where they fit, and say all when pointed at. unit: of time, "ms". Throws BadInput for more actions than a picture can show.
std::string svg_of(const Timing& timing, const std::string& title, const std::string& unit = "");

}  // namespace tandem::pipeline
