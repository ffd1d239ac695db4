// The tier below the CPU's memory: a file that has no name, so that nothing is left behind by a crash.
#include "common/device/tier.h"
#include "common/align.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/device/counting/counting.h"
#include "common/device/memory_stats.h"
#include "common/error.h"

namespace tandem {
namespace {

constexpr std::size_t kPage = 4096;

// Not every file system has O_TMPFILE: there a name lives for a moment.
int open_unnamed(const std::string& directory) {
    const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    std::string path = directory + "/offload.XXXXXX";
    const int named = ::mkostemp(path.data(), O_CLOEXEC);
    if (named >= 0) ::unlink(path.c_str());
    return named;
}

class FileTier final : public Tier {
  public:
    FileTier(const std::string& directory, std::uint64_t bytes)
        : name_(fmt::format("offload file in '{}'", directory)), bytes_(bytes), fd_(open_unnamed(directory)) {
        if (fd_ < 0) throw SystemError(fmt::format("create the {}", name_), errno);
        try {
            reserve();
        } catch (...) {
            ::close(fd_);
            throw;
        }
    }
    ~FileTier() override { ::close(fd_); }
    FileTier(const FileTier&) = delete;
    FileTier& operator=(const FileTier&) = delete;

    std::uint64_t bytes() const override { return bytes_; }
    using Tier::read;
    using Tier::write;

    void write(std::uint64_t offset, ConstSpan from) override {
        check(offset, from.bytes);
        for (std::size_t done = 0; done < from.bytes;) {
            const ssize_t some = ::pwrite(fd_, from.data + done, from.bytes - done, at(offset + done));
            if (some < 0 && errno == EINTR) continue;
            if (some <= 0) fail("write", offset + done, from.bytes - done, some < 0 ? errno : ENOSPC);
            done += static_cast<std::size_t>(some);
        }
        // Out of the page cache soon: dirty pages cannot be dropped before they are written.
        ::sync_file_range(fd_, at(offset), at(from.bytes), SYNC_FILE_RANGE_WRITE);
    }

    void read(std::uint64_t offset, Span to) override {
        check(offset, to.bytes);
        for (std::size_t done = 0; done < to.bytes;) {
            const ssize_t some = ::pread(fd_, to.data + done, to.bytes - done, at(offset + done));
            if (some < 0 && errno == EINTR) continue;
            if (some <= 0) fail("read", offset + done, to.bytes - done, some < 0 ? errno : EIO);
            done += static_cast<std::size_t>(some);
        }
        ::posix_fadvise(fd_, at(offset), at(to.bytes), POSIX_FADV_DONTNEED);
    }

  private:
    static off_t at(std::uint64_t offset) { return static_cast<off_t>(offset); }

    void check(std::uint64_t offset, std::size_t bytes) const {
        require(offset <= bytes_ && bytes <= bytes_ - offset, "{}: bytes [{}, +{}) of {}", name_, offset,
                bytes, bytes_);
    }

    [[noreturn]] void fail(const char* what, std::uint64_t offset, std::size_t bytes, int error) const {
        throw SystemError(fmt::format("{} {} bytes at {} of the {}", what, bytes, offset, name_), error);
    }

    void reserve() {
        // Asked first: to go past this limit is a signal, not an error.
        rlimit limit{};
        ::getrlimit(RLIMIT_FSIZE, &limit);
        if (limit.rlim_cur != RLIM_INFINITY && bytes_ > limit.rlim_cur) fail("reserve", 0, bytes_, EFBIG);
        const int error = bytes_ == 0 ? 0 : ::posix_fallocate(fd_, 0, at(bytes_));
        if (error != 0) fail("reserve", 0, bytes_, error);
    }

    std::string name_;
    std::uint64_t bytes_;
    int fd_;
};

}  // namespace

std::unique_ptr<Tier> make_file_tier(const std::string& directory, std::uint64_t bytes) {
    if (only_counts()) return detail::counting::make_tier(bytes);
    return std::make_unique<FileTier>(directory, bytes);
}

ReleasedPages::ReleasedPages(Span range, std::string_view tag)
    : range_(range), tag_(detail::memory_tag(tag)) {
    auto* const begin =
        reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(range.data), kPage));
    auto* const end = reinterpret_cast<std::byte*>(
        reinterpret_cast<std::uintptr_t>(range.data + range.bytes) / kPage * kPage);
    detail::count_release(tag_, range_.bytes);
    if (begin >= end || only_counts()) return;
    const auto bytes = static_cast<std::size_t>(end - begin);
    // Shared memory must lose the pages themselves, for every process that maps them; private memory knows
    // no such thing.
    if (::madvise(begin, bytes, MADV_REMOVE) == 0 || ::madvise(begin, bytes, MADV_DONTNEED) == 0) return;
    detail::count_allocation(tag_, range_.bytes);
    throw SystemError("madvise of released pages", errno);
}

}  // namespace tandem
