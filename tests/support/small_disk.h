// A file system of a few bytes, which is full when a test wants it: a tmpfs that this process alone and its
// children see. Needs the right to make namespaces (label netns).
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace tandem::test {

class SmallDisk {
  public:
    // Mounts it at `folder`, which is made. Call before there are threads.
    SmallDisk(std::string folder, std::size_t bytes) : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
        check(::unshare(CLONE_NEWNS) == 0, "unshare: these tests have the label netns");
        check(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount / private");
        check(::mount("tmpfs", folder_.c_str(), "tmpfs", 0, size(bytes).c_str()) == 0, "mount");
    }
    ~SmallDisk() { ::umount2(folder_.c_str(), MNT_DETACH); }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;

    std::string operator/(const std::string& name) const { return folder_ + "/" + name; }
    const std::string& path() const { return folder_; }
    void resize(std::size_t bytes) const {
        check(::mount("tmpfs", folder_.c_str(), "tmpfs", MS_REMOUNT, size(bytes).c_str()) == 0, "remount");
    }
    // Takes all of it but `left` bytes with the file "filler".
    void fill(std::size_t left = 0) const {
        const int file = ::open((*this / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        check(file >= 0, "open filler");
        const std::vector<char> block(4096, 'x');
        while (room() > left && ::write(file, block.data(), block.size()) > 0) continue;
        ::close(file);
    }
    void clear() const { std::filesystem::remove(*this / "filler"); }
    std::size_t room() const {
        struct statvfs disk {};
        check(::statvfs(folder_.c_str(), &disk) == 0, "statvfs");
        return disk.f_bavail * disk.f_frsize;
    }

  private:
    static std::string size(std::size_t bytes) { return "size=" + std::to_string(bytes); }
    static void check(bool good, const char* what) {
        if (!good) throw std::system_error(errno, std::generic_category(), what);
    }
    std::string folder_;
};

}  // namespace tandem::test
