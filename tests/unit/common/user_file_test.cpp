// Files that a user names: pipes are read, folders are none, and what could not be written is known beforehand.
#include "common/user_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/error_of.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem {
namespace {

using test::error_of;
using ::testing::HasSubstr;

TEST(UserFile, MayBeAPipeAndIsNoFolder) {
    const model::TemporaryDirectory folder;
    const std::string pipe = folder.path() + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(pipe) << "text"; });
    auto in = open_to_read(pipe);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "text");
    writer.join();
    EXPECT_EQ(error_of([&] { open_to_read(folder.path()); }), folder.path() + ": is a folder, not a file");
    EXPECT_THAT(error_of([&] { open_to_read(folder.path() + "/none"); }),
                HasSubstr("none: cannot be read: No such file or directory"));
}

TEST(UserFile, WhatHasNoEndIsRefused) {
    const model::TemporaryDirectory folder;
    const std::string file = folder.path() + "/file";
    std::ofstream(file) << "12345";
    EXPECT_EQ(read_user_file(file, 5), "12345");
    EXPECT_EQ(error_of([&] { read_user_file(file, 4); }), file + ": is larger than 4 bytes");
    EXPECT_EQ(error_of([] { read_user_file("/dev/zero", 1 << 20); }),
              "/dev/zero: is larger than 1048576 bytes");

    std::ifstream endless("/dev/zero");
    std::string line;
    ASSERT_TRUE(next_line(endless, line, 100));
    EXPECT_EQ(line.size(), 101u);
}

TEST(UserFile, LinesEndWithOrWithoutANewline) {
    std::istringstream in("abc\n\nab\r\nabcd\n");
    std::vector<std::string> lines;
    for (std::string line; next_line(in, line, 4);) lines.push_back(line);
    EXPECT_THAT(lines, ::testing::ElementsAre("abc", "", "ab\r", "abcd"));
    std::istringstream last("a\nb");
    std::string line;
    EXPECT_TRUE(next_line(last, line, 1) && next_line(last, line, 1));
    EXPECT_EQ(line, "b");
    EXPECT_FALSE(next_line(last, line, 1));
}

TEST(UserFile, WritableIsAskedWithoutChangingAnything) {
    const model::TemporaryDirectory folder;
    const std::string there = folder.path() + "/there", none = folder.path() + "/none";
    std::ofstream(there) << "text";
    for (const std::string& file : {there, none, std::string()}) require_writable("--html", file);
    EXPECT_EQ(std::filesystem::file_size(there), 4u);
    EXPECT_FALSE(std::filesystem::exists(none));
    EXPECT_THAT(error_of([&] { require_writable("--html", folder.path()); }),
                HasSubstr("--html: " + folder.path() + " cannot be written: Is a directory"));
    EXPECT_THAT(error_of([&] { require_writable("--html", none + "/page.html"); }),
                HasSubstr("cannot be written: No such file or directory"));
    // A folder that says it may be written to, even to root.
    EXPECT_THAT(error_of([&] { require_writable("--html", "/proc/page.html"); }),
                HasSubstr("--html: /proc/page.html cannot be written: "));
}

}  // namespace
}  // namespace tandem
