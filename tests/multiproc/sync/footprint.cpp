#include "tests/multiproc/sync/footprint.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

namespace tandem::sync {
namespace {

constexpr std::string_view kPrefix = "/memfd:tandem:";
// What an allocator and lazily touched stacks may take, whatever is done.
constexpr long kSlackKib = 256;

void for_descriptors(const std::string& pid,
                     const std::function<void(const std::filesystem::path&, const std::string&)>& see) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + pid + "/fd")) {
        std::error_code gone;  // the descriptor of this very listing
        const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
        if (!gone) see(entry.path(), target);
    }
}

}  // namespace

Footprint footprint(const std::string& pid) {
    Footprint now;
    std::map<ino_t, long> shared;
    for_descriptors(pid, [&](const std::filesystem::path& path, const std::string& target) {
        ++now.descriptors;
        struct stat about {};
        if (target.starts_with(kPrefix) && ::stat(path.c_str(), &about) == 0)
            shared[about.st_ino] = about.st_blocks / 2;
    });
    for (const auto& [inode, kib] : shared) now.shared_kib += kib;
    std::ifstream rollup("/proc/" + pid + "/smaps_rollup");
    for (std::string line; std::getline(rollup, line);) {
        std::istringstream words(line);
        std::string key;
        long kib = 0;
        words >> key >> kib;
        if (key == "Rss:") now.resident_kib = kib;
        if (key == "Anonymous:") now.anonymous_kib = kib;
    }
    return now;
}

std::string growth(const Footprint& before, const Footprint& now) {
    std::string text;
    const auto compare = [&](const char* what, long from, long to, long slack) {
        if (to > from + slack) text += fmt::format("{} went from {} to {}; ", what, from, to);
    };
    compare("descriptors", before.descriptors, now.descriptors, 0);
    compare("shared memory (KiB)", before.shared_kib, now.shared_kib, 0);
    compare("resident memory (KiB)", before.resident_kib, now.resident_kib, kSlackKib);
    compare("own memory (KiB)", before.anonymous_kib, now.anonymous_kib, kSlackKib);
    return text;
}

std::vector<std::string> shared_memory_of(int pid) {
    std::set<std::pair<std::string, std::string>> found;  // inode, name: an arena may be mapped in parts
    std::ifstream maps(fmt::format("/proc/{}/maps", pid));
    for (std::string line; std::getline(maps, line);) {
        const std::size_t at = line.find(kPrefix);
        if (at == std::string::npos) continue;
        std::istringstream words(line);
        std::string range, access, offset, device, inode;
        words >> range >> access >> offset >> device >> inode;
        const std::string name = line.substr(at + kPrefix.size());
        found.emplace(inode, name.substr(0, name.find(" (deleted)")));
    }
    std::vector<std::string> names;
    for (const auto& [inode, name] : found) names.push_back(name);
    return names;
}

int sockets_of(int pid) {
    int sockets = 0;
    for_descriptors(std::to_string(pid), [&](const std::filesystem::path&, const std::string& target) {
        sockets += target.starts_with("socket:") ? 1 : 0;
    });
    return sockets;
}

}  // namespace tandem::sync
