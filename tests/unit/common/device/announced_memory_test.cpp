// What a path from outside may lead to: sealed memory of this user, and nothing else. (Memory of other users:
// tests/multiproc/other_user.)
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/device/announced_memory.h"
#include "common/error.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& path, std::size_t bytes = 8192) {
    try {
        open_announced_arena(path, bytes);
    } catch (const BadInput& error) {
        return error.what();
    }
    return "";
}

std::string refusal_of(int fd) {
    const std::string why = refusal(announced_path(fd));
    ::close(fd);
    return why;
}

std::size_t open_descriptors() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                                  std::filesystem::directory_iterator()));
}

TEST(AnnouncedMemory, SharesBytes) {
    const auto made = SharedArena::create("test", 8192, "");
    const auto opened = open_announced_arena(announced_path(made.fd()), 8192);
    std::memcpy(made.data() + 5000, "tandem", 6);
    EXPECT_EQ(std::memcmp(opened.data() + 5000, "tandem", 6), 0);
}

TEST(AnnouncedMemory, OpensOnlyPathsOfDescriptors) {
    const auto made = SharedArena::create("test", 8192, "");
    const std::string path = announced_path(made.fd());
    const std::string fd = std::to_string(made.fd());
    for (const std::string& other :
         {std::string(), std::string("/tmp/evil"), "/proc/self/fd/" + fd, "." + path, "/" + path, path + "/",
          path + "/../" + fd, path + "\n", path + std::string(1, '\0'), "/proc//fd/" + fd,
          std::string("/proc/1/fd/"), "/proc/1/fd/-" + fd, "/proc/1/root/proc/1/fd/" + fd,
          "/proc/" + std::to_string(::getpid()) + "/fd/0000000000" + fd}) {
        EXPECT_THAT(refusal(other), HasSubstr("/proc/PID/fd/FD")) << other;
    }
    EXPECT_THROW(open_announced(announced_path(999'999)), SystemError);
}

TEST(AnnouncedMemory, OpensOnlyMemory) {
    EXPECT_THAT(refusal_of(::open("/dev/null", O_RDWR | O_CLOEXEC)), HasSubstr("another kind of file"));
    EXPECT_THAT(refusal_of(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                HasSubstr("another kind of file"));
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    EXPECT_THAT(refusal_of(ends[0]), HasSubstr("another kind of file"));
    EXPECT_THAT(refusal_of(ends[1]), HasSubstr("another kind of file"));
    const std::string file = ::testing::TempDir() + "announced_" + std::to_string(::getpid());
    std::ofstream(file) << std::string(8192, 'x');
    EXPECT_THAT(refusal_of(::open(file.c_str(), O_RDWR | O_CLOEXEC)), HasSubstr("sealed"));
    std::filesystem::remove(file);
}

TEST(AnnouncedMemory, OpensOnlySealedSizes) {
    for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_GROW}) {
        const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ASSERT_EQ(::ftruncate(fd, 8192), 0);
        ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
        EXPECT_THAT(refusal_of(fd), HasSubstr("sealed")) << seals;
    }
    const auto made = SharedArena::create("test", 8192, "");
    EXPECT_THAT(refusal(announced_path(made.fd()), 4096), HasSubstr("has 8192 bytes, 4096 announced"));
    EXPECT_THAT(refusal(announced_path(made.fd()), 16384), HasSubstr("has 8192 bytes, 16384 announced"));
}

TEST(AnnouncedMemory, RefusalsLeaveNothingOpen) {
    const auto made = SharedArena::create("test", 8192, "");
    const std::size_t before = open_descriptors();
    EXPECT_NE(refusal(announced_path(made.fd()), 4096), "");
    EXPECT_NE(refusal_of(::open("/dev/null", O_RDWR | O_CLOEXEC)), "");
    EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace tandem
