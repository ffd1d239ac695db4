// Traces of several processes in one file for the trace viewer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tandem::trace {

inline constexpr std::size_t kLargestTrace = std::size_t{1} << 34;  // of a file

// {"traceEvents": […]} with the events of all parts: lists of events as take_json() gives them, or the text
// of a trace file. A part that is neither is left out with a warning: a trace is never worth a run.
std::string merged(const std::vector<std::string>& parts);

// Writes the merged parts to a file, whole or not at all. Throws SystemError naming the file.
void write_file(const std::string& file, const std::vector<std::string>& parts);
// The same, with the events that the file holds already.
void add_to_file(const std::string& file, const std::vector<std::string>& parts);

}  // namespace tandem::trace
