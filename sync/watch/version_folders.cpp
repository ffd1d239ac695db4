#include "sync/watch/version_folders.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>

#include "common/error.h"

namespace tandem::sync {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNewestVersion = std::uint64_t{1} << 53;  // that every JSON reader knows exactly

bool is_unfinished_name(std::string_view name) {
    constexpr std::array<std::string_view, 3> kBegins{".", "_", "tmp"};
    constexpr std::array<std::string_view, 4> kEnds{".tmp", ".part", ".partial", ".incomplete"};
    return std::ranges::any_of(kBegins, [&](std::string_view one) { return name.starts_with(one); }) ||
           std::ranges::any_of(kEnds, [&](std::string_view one) { return name.ends_with(one); });
}

std::int64_t ns_of(const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool is_pushed_file(std::string_view name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

}  // namespace

std::optional<std::uint64_t> number_in(const std::string& name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    const std::string_view digits = std::string_view(name).substr(last == std::string::npos ? 0 : last + 1);
    if (digits.empty()) return {};
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return error == std::errc() ? number : kNewestVersion + 1;
}

VersionFolders::VersionFolders(WatchedFolder watched, Tell tell, Open open)
    : watched_(std::move(watched)), tell_(std::move(tell)), open_(std::move(open)) {
    std::error_code error;
    if (!fs::is_directory(watched_.directory, error))
        throw ConfigError(watched_.directory, "", "is no folder that could be watched");
    // Before the first listing: a rename between the two is seen by one of them.
    events_.reset(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (events_ && ::inotify_add_watch(events_.get(), watched_.directory.c_str(),
                                       IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_ONLYDIR) < 0)
        events_.reset();
}

void VersionFolders::wait(std::chrono::milliseconds longest) {
    pollfd event{events_.get(), POLLIN, 0};
    ::poll(&event, events_ ? 1 : 0, static_cast<int>(longest.count()));
}

void VersionFolders::read_events() {
    alignas(inotify_event) std::array<char, 16384> buffer;
    while (events_) {
        const ssize_t bytes = ::read(events_.get(), buffer.data(), buffer.size());
        if (bytes <= 0) return;
        for (ssize_t at = 0; at < bytes;) {
            inotify_event event;
            std::memcpy(&event, buffer.data() + at, sizeof(event));
            const char* name = buffer.data() + at + sizeof(event);
            if (event.len > 0 && (event.mask & IN_MOVED_TO) != 0) moved_in_.insert(name);
            at += static_cast<ssize_t>(sizeof(event) + event.len);
        }
    }
}

VersionFolders::Trace VersionFolders::trace_of(const std::string& path) {
    Trace trace;
    struct stat folder {};
    if (::stat(path.c_str(), &folder) != 0) return trace;
    trace.newest_ns = ns_of(folder.st_mtim);
    std::vector<std::string> files;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, error))
        files.push_back(entry.path().filename().string());
    std::sort(files.begin(), files.end());
    for (const std::string& name : files) {
        struct stat file {};
        if (::stat((path + "/" + name).c_str(), &file) != 0) continue;
        trace.newest_ns = std::max({trace.newest_ns, ns_of(file.st_mtim), ns_of(file.st_ctim)});
        const std::string line =
            fmt::format("{}\t{}\t{}\t{}\n", name, file.st_ino, file.st_size, ns_of(file.st_mtim));
        trace.all += line;
        if (is_pushed_file(name)) trace.weights += line;
    }
    return trace;
}

// Folders come, go and change.
void VersionFolders::list() {
    std::set<std::string> there;
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(watched_.directory, error)) {
        const std::string name = entry.path().filename().string();
        std::error_code gone;
        if (entry.is_symlink(gone) || !entry.is_directory(gone) || is_unfinished_name(name)) continue;
        if (::fnmatch(watched_.pattern.c_str(), name.c_str(), 0) != 0) continue;
        there.insert(name);
        Trace trace = trace_of(entry.path().string());
        auto [at, fresh] = folders_.try_emplace(name);
        Folder& folder = at->second;
        if (fresh) {
            folder.name = name;
            folder.number = number_in(name);
        }
        const bool rewritten = folder.trace.weights != trace.weights;
        if (fresh || folder.trace.all != trace.all) folder.since = Clock::now();
        folder.trace = std::move(trace);
        if (rewritten && !was_pushed(folder))
            folder.passed = folder.passed && !fresh && !pushed_.contains(name);
    }
    std::erase_if(folders_, [&](const auto& one) { return !there.contains(one.first); });
    std::erase_if(moved_in_, [&](const std::string& name) { return !there.contains(name); });
}

// As it is now.
bool VersionFolders::was_pushed(const Folder& folder) const {
    const auto found = pushed_.find(folder.name);
    return found != pushed_.end() && found->second == folder.trace.weights;
}

bool VersionFolders::may_follow(const Folder& folder) const {
    if (watched_.rollback) return true;
    if (pushed_.contains(folder.name)) return false;  // replaced under its name
    return !folder.number || !began_ || *folder.number > static_cast<std::uint64_t>(newest_);
}

// Those that are not passed. At the start what has a number goes before what has none; later what was written last.
std::vector<VersionFolders::Folder*> VersionFolders::newest_first() {
    std::vector<Folder*> order;
    for (auto& [name, folder] : folders_) {
        if (!folder.passed && !was_pushed(folder)) order.push_back(&folder);
    }
    const auto key = [&](const Folder* folder) {
        const bool counted = !folder->number;
        const std::uint64_t number = folder->number.value_or(0);
        if (watched_.rollback && began_) return std::tuple(true, std::uint64_t{0}, folder->trace.newest_ns);
        return std::tuple(began_ ? counted : !counted, number, folder->trace.newest_ns);
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](const Folder* a, const Folder* b) { return key(a) > key(b); });
    return order;
}

bool VersionFolders::rests(const Folder& folder) const {
    if (Clock::now() - folder.since >= watched_.rest) return true;
    // As the file system's clock has it: what is there when the watch begins need not be waited for.
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t rest_ns = std::chrono::nanoseconds(watched_.rest).count();
    return folder.trace.newest_ns + rest_ns <= ns_of(now);
}

// Null where it is not whole; `why` says why.
std::shared_ptr<const DirectoryWeights> VersionFolders::open_whole(Folder& folder) {
    const std::string path = path_of(folder);
    std::error_code error;
    if (!watched_.marker.empty() && !fs::exists(path + "/" + watched_.marker, error)) {
        folder.why = "there is no " + watched_.marker + " in it";
        return nullptr;
    }
    if (watched_.marker.empty() && !moved_in_.contains(folder.name) && !rests(folder)) {
        folder.why = "it is being written";
        return nullptr;
    }
    if (folder.failed_as == folder.trace.all) return nullptr;
    try {
        auto weights = open_(path);
        moved_in_.erase(folder.name);
        return weights;
    } catch (const Error& problem) {
        folder.failed_as = folder.trace.all;
        folder.why = problem.what();
        moved_in_.erase(folder.name);  // what comes later into it does so without a rename
        return nullptr;
    }
}

// A whole one that is not to follow the one before.
void VersionFolders::refuse(Folder& folder) {
    folder.passed = true;
    if (const auto found = pushed_.find(folder.name); found != pushed_.end()) {
        found->second = folder.trace.weights;
        tell_(fmt::format(
            "{} was replaced under its name after it was pushed: servers keep what they were given; write "
            "it under a new name, or ask for --rollback",
            folder.name));
    } else {
        tell_(fmt::format(
            "{} is not above {}, which was pushed: not pushed (--rollback takes what is written last)",
            folder.name, newest_));
    }
}

Version VersionFolders::pass(Folder& folder, std::shared_ptr<const DirectoryWeights> weights) {
    const auto number =
        folder.number ? static_cast<std::int64_t>(*folder.number) : std::max(counted_, newest_) + 1;
    // What is not whole yet may still follow.
    for (auto& [name, other] : folders_) {
        bool may_follow = other.number ? static_cast<std::int64_t>(*other.number) > number : began_;
        if (watched_.rollback && began_) may_follow = other.trace.newest_ns > folder.trace.newest_ns;
        if (!may_follow) other.passed = true;
    }
    folder.passed = true;
    pushed_[folder.name] = folder.trace.weights;
    newest_ = number;
    counted_ = std::max(counted_, number);
    began_ = true;
    return {folder.name, path_of(folder), number, std::move(weights)};
}

std::optional<Version> VersionFolders::look() {
    read_events();
    list();
    unfinished_.clear();
    for (Folder* folder : newest_first()) {
        if (folder->number && (*folder->number == 0 || *folder->number > kNewestVersion)) {
            folder->passed = true;
            tell_(fmt::format("{} is passed over: versions are 1 to {}", folder->name, kNewestVersion));
            continue;
        }
        std::shared_ptr<const DirectoryWeights> weights = open_whole(*folder);
        if (!weights) {
            if (unfinished_.empty()) unfinished_ = folder->name + ": " + folder->why;
            // What was written just before the watch began may be whole: servers may have it, and it goes first.
            if (!began_ && watched_.marker.empty() && Clock::now() - made_ < watched_.rest) return {};
            continue;
        }
        if (may_follow(*folder)) return pass(*folder, std::move(weights));
        refuse(*folder);
    }
    return {};
}

void VersionFolders::forget(const Version& version) {
    pushed_.erase(version.name);
    const auto found = folders_.find(version.name);
    if (found == folders_.end()) return;
    found->second.passed = false;
    if (newest_ == version.number) newest_ = version.number - 1;
}

}  // namespace tandem::sync
