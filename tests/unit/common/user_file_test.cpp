// Files that a user names: pipes are read, folders are none, and what could not be written is known beforehand.
#include "common/user_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <thread>

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
