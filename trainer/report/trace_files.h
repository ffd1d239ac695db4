// The Chrome trace of a run: each process leaves its events in a file of its own, which are then merged into
// trace.json.
#pragma once

#include <string>

namespace tandem::trainer {

// Writes the events that common/trace.h recorded in this process so far to DIR/trace.PROCESS.json.
void write_trace_part(const std::string& directory, const std::string& process);

// Merges the parts into DIR/trace.json ({"traceEvents": […]}) and removes them. A part that cannot be read is
// left out: a trace is never worth a run.
void merge_trace_parts(const std::string& directory);

}  // namespace tandem::trainer
