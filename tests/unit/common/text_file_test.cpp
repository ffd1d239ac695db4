// Files that somebody else may have put there.
#include "common/text_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/error_of.h"
#include "tests/unit/common/model/temporary_directory.h"

namespace tandem {
namespace {

using test::error_of;
using ::testing::HasSubstr;

TEST(TextFile, IsReadWholeAndWithinItsLimit) {
    const model::TemporaryDirectory folder;
    const std::string file = folder.path() + "/f", text(200'000, 'x');
    std::ofstream(file) << text;
    EXPECT_EQ(read_text_file(file), text);
    EXPECT_EQ(read_text_file(file, text.size()), text);
    EXPECT_THAT(error_of([&] { read_text_file(file, text.size() - 1); }),
                HasSubstr("f: is 200000 bytes long, more than 199999"));
    std::ofstream(file).flush();
    EXPECT_EQ(read_text_file(file, 0), "");
    EXPECT_THAT(read_text_file("/proc/self/status"), HasSubstr("Threads:"));  // which says that it is empty
    EXPECT_THAT(error_of([&] { read_text_file("/proc/self/status", 10); }), HasSubstr("more than 10"));
}

// Nobody writes to the FIFO, and /dev/zero has no end.
TEST(TextFile, IsARegularFile) {
    const model::TemporaryDirectory folder;
    const std::string at = folder.path() + "/";
    ASSERT_EQ(::mkfifo((at + "fifo").c_str(), 0600), 0);
    std::filesystem::create_symlink("/dev/zero", at + "zero");
    for (const char* name : {"fifo", "zero"})
        EXPECT_THAT(error_of([&] { read_text_file(at + name); }), HasSubstr("is not a regular file")) << name;
    EXPECT_THAT(error_of([&] { read_text_file(folder.path()); }), HasSubstr("is a folder, not a file"));
    EXPECT_THAT(error_of([&] { read_text_file(at + "none"); }), HasSubstr("cannot be opened: No such file"));
    EXPECT_EQ(read_text_file_if_there(at + "none"), "");
    EXPECT_THAT(error_of([&] { read_text_file_if_there(at + "fifo"); }), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace tandem
