// This process's memory as the kernel counts it: the truth that our own counts are compared with. Shared
// pages (the job's arena) count for every process that has touched them.
#pragma once

#include <cstdint>

namespace tandem {

struct ProcessMemory {
    std::uint64_t resident_bytes = 0;   // VmRSS
    std::uint64_t peak_bytes = 0;       // VmHWM, since the start or the last reset
    std::uint64_t anonymous_bytes = 0;  // of the resident ones
    std::uint64_t shared_bytes = 0;
};

ProcessMemory process_memory();  // zeros where /proc is not there

}  // namespace tandem
