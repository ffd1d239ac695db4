#include "common/owned_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string_view>
#include <utility>

#include "common/error.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockFile = "lock";
// A folder has this name until it is locked, so that nobody takes it for one that was left.
constexpr std::string_view kUnfinished = ".tandem-new.";
constexpr std::size_t kSuffix = 6;  // of mkdtemp
constexpr std::size_t kMostNames = 10'000;
constexpr std::int64_t kUnfinishedFor = 600;  // seconds, at most

FileDescriptor open_folder(const fs::path& folder) {
    return FileDescriptor(
        ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
}

bool is_ours_alone(const FileDescriptor& fd) {
    struct stat status {};
    return ::fstat(fd.get(), &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

FileDescriptor open_file(const FileDescriptor& folder, const std::string& name, int flags) {
    FileDescriptor fd(
        ::openat(folder.get(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
    struct stat status {};
    if (fd && (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()))
        fd.reset();
    return fd;
}

std::vector<std::string> names_in(const FileDescriptor& folder, std::string_view prefix = "") {
    std::vector<std::string> names;
    // A descriptor of its own: closedir closes it.
    const int own = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return names;
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own), ::closedir);
    if (!stream) {
        ::close(own);
        return names;
    }
    while (const dirent* entry = ::readdir(stream.get())) {
        const std::string name = entry->d_name;
        if (name == "." || name == ".." || !name.starts_with(prefix)) continue;
        if (names.size() == kMostNames) break;
        names.push_back(name);
    }
    return names;
}

// What is in it goes first, files alone; rmdir takes nothing that holds something.
void remove_folder(const FileDescriptor& folder, const fs::path& path) noexcept {
    try {
        for (const std::string& name : names_in(folder)) ::unlinkat(folder.get(), name.c_str(), 0);
    } catch (...) {  // no memory for the names: the folder stays
    }
    ::rmdir(path.c_str());
}

// Those that were killed between mkdtemp and the lock.
void remove_unfinished(const fs::path& root) {
    const FileDescriptor folder = open_folder(root);
    if (!folder) return;
    for (const std::string& name : names_in(folder, kUnfinished)) {
        const FileDescriptor unfinished = open_folder(root / name);
        struct stat status {};
        if (!unfinished || !is_ours_alone(unfinished) || ::fstat(unfinished.get(), &status) != 0) continue;
        if (status.st_mtime + kUnfinishedFor < ::time(nullptr)) remove_folder(unfinished, root / name);
    }
}

}  // namespace

OwnedFolder::OwnedFolder(const fs::path& root, std::string_view prefix) {
    std::string name = (root / kUnfinished).string() + std::string(kSuffix, 'X');
    if (::mkdtemp(name.data()) == nullptr)
        throw SystemError(fmt::format("a folder in {}", root.string()), errno);
    path_ = name;
    try {
        folder_ = open_folder(path_);
        if (!folder_) throw SystemError("open " + path_.string(), errno);
        lock_ = create(kLockFile);
        if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
            throw SystemError("flock in " + path_.string(), errno);
        const fs::path wanted = root / fmt::format("{}{}", prefix, name.substr(name.size() - kSuffix));
        // Should somebody have that very name, with something in it, this fails.
        if (::rename(path_.c_str(), wanted.c_str()) != 0)
            throw SystemError("rename to " + wanted.string(), errno);
        path_ = wanted;
    } catch (...) {
        remove_folder(folder_, path_);
        throw;
    }
}

OwnedFolder::~OwnedFolder() {
    if (!stays_) remove_folder(folder_, path_);
}

FileDescriptor OwnedFolder::create(const std::string& name) const {
    FileDescriptor fd(
        ::openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) throw SystemError("open " + (path_ / name).string(), errno);
    return fd;
}

void OwnedFolder::write(const std::string& name, std::string_view text) const {
    const FileDescriptor fd = create(name);
    const ssize_t written = ::write(fd.get(), text.data(), text.size());
    if (written != static_cast<ssize_t>(text.size()))
        throw SystemError("write " + (path_ / name).string(), written < 0 ? errno : ENOSPC);
}

void OwnedFolder::remove(const std::string& name) const noexcept {
    ::unlinkat(folder_.get(), name.c_str(), 0);
}

std::vector<std::string> LeftFolder::names() const {
    return names_in(folder_);
}

std::optional<std::string> LeftFolder::read(const std::string& name, std::size_t limit) const {
    const FileDescriptor fd = open_file(folder_, name, O_RDONLY);
    if (!fd) return std::nullopt;
    std::string text(limit + 1, '\0');
    const ssize_t read = ::read(fd.get(), text.data(), text.size());
    if (read < 0 || static_cast<std::size_t>(read) > limit) return std::nullopt;
    text.resize(static_cast<std::size_t>(read));
    return text;
}

std::int64_t LeftFolder::age_s() const {
    struct stat status {};
    return ::fstat(lock_.get(), &status) == 0 ? ::time(nullptr) - status.st_mtime : 0;
}

void LeftFolder::remove(const std::string& name) const noexcept {
    ::unlinkat(folder_.get(), name.c_str(), 0);
}

void LeftFolder::remove_all() const noexcept {
    remove_folder(folder_, path_);
}

std::optional<LeftFolder> left_folder(const fs::path& folder) {
    LeftFolder left;
    left.path_ = folder;
    left.folder_ = open_folder(folder);
    if (!left.folder_ || !is_ours_alone(left.folder_)) return std::nullopt;
    left.lock_ = open_file(left.folder_, kLockFile, O_RDONLY);
    // Shared: two who look at one time both find it.
    if (!left.lock_ || ::flock(left.lock_.get(), LOCK_SH | LOCK_NB) != 0) return std::nullopt;
    return left;
}

std::vector<LeftFolder> left_folders(const fs::path& root, std::string_view prefix) {
    remove_unfinished(root);
    std::vector<LeftFolder> result;
    const FileDescriptor folder = open_folder(root);
    if (!folder) return result;
    for (const std::string& name : names_in(folder, prefix)) {
        if (std::optional<LeftFolder> left = left_folder(root / name)) result.push_back(std::move(*left));
    }
    return result;
}

FileDescriptor private_folder(const fs::path& folder) {
    ::mkdir(folder.c_str(), 0700);
    FileDescriptor fd = open_folder(folder);
    if (fd && !is_ours_alone(fd)) fd.reset();
    return fd;
}

}  // namespace tandem
