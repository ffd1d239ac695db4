// A folder in a place where everybody may write, and what is left of it.
#include "common/owned_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "common/error.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr const char* kPrefix = "owned.";

class OwnedFolders : public ::testing::Test {
  protected:
    OwnedFolders() {
        std::string name = (fs::temp_directory_path() / "owned_test.XXXXXX").string();
        root_ = ::mkdtemp(name.data());
    }
    ~OwnedFolders() override { fs::remove_all(root_); }

    std::vector<fs::path> entries() const {
        std::vector<fs::path> result;
        for (const auto& entry : fs::directory_iterator(root_)) result.push_back(entry.path());
        return result;
    }
    // Of a process that ended without a word.
    fs::path left_by_a_dead_process(const std::string& file, const std::string& text) {
        const pid_t child = ::fork();
        if (child == 0) {
            OwnedFolder folder(root_, kPrefix);
            folder.write(file, text);
            ::_exit(0);
        }
        ::waitpid(child, nullptr, 0);
        return entries().at(0);
    }
    // What a neighbour could have made, but for whose it is.
    fs::path planted(const std::string& name, bool lock = true) {
        const fs::path folder = root_ / (kPrefix + name);
        ::mkdir(folder.c_str(), 0700);
        if (lock) std::ofstream(folder / "lock");
        return folder;
    }

    fs::path root_;
};

TEST_F(OwnedFolders, IsThisUsersAloneAndGoesWithItsFiles) {
    {
        const OwnedFolder folder(root_, kPrefix);
        struct stat status {};
        ASSERT_EQ(::stat(folder.path().c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 0777, 0700u);
        EXPECT_THAT(folder.path().filename().string(), ::testing::StartsWith(kPrefix));
        folder.write("a", "text");
        EXPECT_THROW(folder.write("a", "again"), SystemError);
        EXPECT_THAT(left_folders(root_, kPrefix), IsEmpty());  // it lives
    }
    EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(OwnedFolders, OneThatWasLeftSaysWhatIsInItAndGoes) {
    const fs::path path = left_by_a_dead_process("note", "paused");
    const auto left = left_folders(root_, kPrefix);
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(left[0].path(), path);
    EXPECT_THAT(left[0].names(), UnorderedElementsAre("lock", "note"));
    EXPECT_EQ(left[0].read("note"), "paused");
    EXPECT_EQ(left[0].read("note", 3), std::nullopt);
    EXPECT_LT(left[0].age_s(), 60);
    // Two who look at one time both find it.
    EXPECT_EQ(left_folders(root_, kPrefix).size(), 1u);
    left[0].remove_all();
    EXPECT_THAT(entries(), IsEmpty());
}

TEST_F(OwnedFolders, OneThatIsToStayIsFoundAfterItsProcess) {
    { OwnedFolder(root_, kPrefix).leave(); }
    EXPECT_EQ(left_folders(root_, kPrefix).size(), 1u);
}

TEST_F(OwnedFolders, OnlyRegularFilesOfThisUsersAreRead) {
    const fs::path path = left_by_a_dead_process("note", "paused");
    ASSERT_EQ(::mkfifo((path / "fifo").c_str(), 0600), 0);
    fs::create_symlink("/dev/zero", path / "zero");
    fs::create_symlink("note", path / "link");
    fs::create_directory(path / "folder");
    const auto left = left_folders(root_, kPrefix);
    ASSERT_EQ(left.size(), 1u);
    for (const char* name : {"fifo", "zero", "link", "folder", "absent"})
        EXPECT_EQ(left[0].read(name), std::nullopt) << name;
    // What is in folders is nobody's of ours: it stays, with the folder.
    std::ofstream(path / "folder" / "file") << "kept";
    left[0].remove_all();
    EXPECT_THAT(entries(), ElementsAre(path));
    EXPECT_TRUE(fs::exists(path / "folder" / "file"));
}

TEST_F(OwnedFolders, OthersFoldersAndLinksAreNotFollowed) {
    const fs::path victim = root_ / "victim";
    fs::create_directory(victim);
    std::ofstream(victim / "lock");
    std::ofstream(victim / "model.safetensors") << "weights";
    ASSERT_EQ(::chmod(victim.c_str(), 0700), 0);
    fs::create_directory_symlink(victim, root_ / (std::string(kPrefix) + "link"));
    const fs::path open_to_others = planted("open");
    ASSERT_EQ(::chmod(open_to_others.c_str(), 0777), 0);
    planted("without-lock", false);
    ASSERT_EQ(::mkfifo((planted("fifo", false) / "lock").c_str(), 0600), 0);
    ASSERT_EQ(::mkfifo((root_ / (std::string(kPrefix) + "itself")).c_str(), 0600), 0);
    EXPECT_THAT(left_folders(root_, kPrefix), IsEmpty());
    EXPECT_TRUE(fs::exists(victim / "model.safetensors"));
}

TEST_F(OwnedFolders, AFolderThatWasNeverLockedGoesInTime) {
    const fs::path young = root_ / ".tandem-new.aaaaaa", old = root_ / ".tandem-new.bbbbbb";
    for (const fs::path& path : {young, old}) ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
    const timespec hour_ago[2] = {{::time(nullptr) - 3600, 0}, {::time(nullptr) - 3600, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, old.c_str(), hour_ago, 0), 0);
    left_folders(root_, kPrefix);
    EXPECT_THAT(entries(), ElementsAre(young));
}

TEST_F(OwnedFolders, APrivateFolderIsThisUsersOrNone) {
    EXPECT_TRUE(private_folder(root_ / "mine"));
    EXPECT_TRUE(private_folder(root_ / "mine"));
    EXPECT_EQ(::chmod((root_ / "mine").c_str(), 0755), 0);
    EXPECT_FALSE(private_folder(root_ / "mine"));
    fs::create_directory_symlink(root_, root_ / "link");
    EXPECT_FALSE(private_folder(root_ / "link"));
    std::ofstream(root_ / "file");
    EXPECT_FALSE(private_folder(root_ / "file"));
    EXPECT_FALSE(private_folder(root_ / "no" / "such"));
}

}  // namespace
}  // namespace tandem
