// [memory] against the machine.
#include <fmt/core.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/device/tier.h"
#include "common/error.h"
#include "trainer/config/check.h"
#include "trainer/config/pipeline.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;

// memory.offload_dir, or the folder in which the run's own will be made.
fs::path folder_of(const RunConfig& c, const config::Schema& s) {
    if (!c.memory.offload_dir.empty()) {
        if (!fs::is_directory(c.memory.offload_dir))
            s.refuse("memory.offload_dir", fmt::format("'{}' is not a folder", c.memory.offload_dir));
        return c.memory.offload_dir;
    }
    fs::path folder = fs::absolute(c.run.output);
    while (!fs::exists(folder) && folder.has_parent_path()) folder = folder.parent_path();
    return folder;
}

double gib(double bytes) {
    return bytes / (1 << 30);
}

// State that leaves a GPU goes to host memory.
void check_host_memory(const config::Schema& s, double needed) {
    std::ifstream file("/proc/meminfo");
    std::string word;
    double available = -1;  // unknown: not refused
    while (file >> word) {
        if (word == "MemAvailable:" && file >> available) break;
    }
    if (available < 0 || needed <= available * 1024) return;
    s.refuse("memory.offload",
             fmt::format("the ranks together will keep {:.2f} GiB in pinned host memory, {:.2f} GiB are free",
                         gib(needed), gib(available * 1024)));
}

}  // namespace

void check_memory(const RunConfig& c, const config::Schema& s, const model::ModelConfig& model) {
    const std::string& offload = c.memory.offload;
    const std::string& sleep = c.memory.trainer_sleep;
    if (offload == "none" && sleep == "none") return;
    const bool optimizer = offload == "optimizer" || offload == "all" || sleep != "none";
    const bool parameters = offload == "parameters" || offload == "all" || sleep == "all";

    const auto shard = 4 * static_cast<std::uint64_t>(largest_shard(c, model));
    const double states = (optimizer ? 2 : 0) + (parameters ? 1 : 0);
    const double needed = states * static_cast<double>(shard) * static_cast<double>(c.world_size());
    if (c.run.device == "cuda") return check_host_memory(s, needed);

    const fs::path folder = folder_of(c, s);
    try {
        make_file_tier(folder.string(), shard);  // the largest single file of a rank
    } catch (const SystemError& error) {
        s.refuse("memory.offload_dir", error.what());
    }
    struct statvfs disk {};
    if (::statvfs(folder.c_str(), &disk) != 0)
        s.refuse("memory.offload_dir", SystemError("statvfs of " + folder.string(), errno).what());
    const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
    if (needed > free) {
        s.refuse("memory.offload_dir",
                 fmt::format("'{}' has {:.2f} GiB left, the ranks together will keep {:.2f} GiB there",
                             folder.string(), gib(free), gib(needed)));
    }
}

}  // namespace tandem::trainer
