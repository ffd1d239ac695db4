#include "tests/support/kernel_places.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <unordered_map>

extern "C" const char __executable_start[];  // by the linker

namespace fibers::races {
namespace {

std::string asked(std::ptrdiff_t offset) {
    const std::string command =
        fmt::format("addr2line -Cpsfie /proc/{}/exe {:#x} 2>/dev/null", getpid(), offset - 1);
    std::string all;
    if (FILE* const pipe = popen(command.c_str(), "r")) {
        std::array<char, 512> line;
        while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr) all += line.data();
        pclose(pipe);
    }
    if (all.empty()) return fmt::format("code at {:#x}", offset);
    all.pop_back();
    for (std::size_t end; (end = all.find('\n')) != std::string::npos;) all.replace(end, 1, ",");
    return all;
}

}  // namespace

const std::string& place_of(const void* code) {
    static thread_local std::unordered_map<const void*, std::string> known;
    std::string& result = known[code];
    if (result.empty()) result = asked(static_cast<const char*>(code) - __executable_start);
    return result;
}

}  // namespace fibers::races
