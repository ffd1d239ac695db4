#include "common/device/process_memory.h"

#include <fstream>
#include <string>

namespace tandem {

ProcessMemory process_memory() {
    ProcessMemory result;
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);) {
        const auto read = [&](const char* key, std::uint64_t& value) {
            const std::string wanted = std::string(key) + ":";
            if (line.starts_with(wanted)) value = std::stoull(line.substr(wanted.size())) * 1024;
        };
        read("VmRSS", result.resident_bytes);
        read("VmHWM", result.peak_bytes);
        read("RssAnon", result.anonymous_bytes);
        read("RssShmem", result.shared_bytes);
    }
    return result;
}

}  // namespace tandem
