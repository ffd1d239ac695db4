// What a neighbour puts into the place where weights are staged, before a push into a server of this user's: nothing of
// the pusher's goes, nobody waits, nothing is believed, and the push succeeds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>

#include "tests/multiproc/other_user/as_nobody.h"
#include "tests/support/forked.h"
#include "tests/unit/sync/push/push_fixture.h"

namespace tandem::sync {
namespace {

using test::exit_code_of;
using test::start_as_nobody;
using ::testing::IsEmpty;

class StagingOfOthers : public Push {
  protected:
    void SetUp() override {
        ASSERT_EQ(::getuid(), 0U) << "leave these tests out with ctest -LE root";
        ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
        ASSERT_EQ(::chmod(staging_.c_str(), 01777), 0);  // as /dev/shm is
    }
    // tandem-staged.NAMESPACE.PID.START.COUNT.vN, as older versions named what they left, and as this one does.
    std::vector<fs::path> names_of_the_dead() const {
        const std::string link = fs::read_symlink("/proc/self/ns/pid").string();
        const std::string ns = link.substr(link.find('[') + 1, link.size() - link.find('[') - 2);
        return {staging_ / ("tandem-staged." + ns + ".99999.1.1.v1"), staging_ / "tandem-staged.v1.aaaaaa"};
    }
    // Each name is a folder of nobody's, with a lock that nobody holds, in which `plant` puts something.
    void plant(const std::function<void(const fs::path&)>& plant) {
        const pid_t neighbour = start_as_nobody([&] {
            for (const fs::path& folder : names_of_the_dead()) {
                if (::mkdir(folder.c_str(), 0700) != 0) return 1;
                std::ofstream(folder / "lock");
                plant(folder);
            }
            return 0;
        });
        ASSERT_EQ(exit_code_of(neighbour), 0);
    }
    void expect_a_push() {
        VllmStandIn server({.model = model("a", 1)});
        const std::string next = model("b", 2);
        const auto outcome = push(next, {server.url()})[0];
        EXPECT_TRUE(outcome.whole) << outcome.error;
        EXPECT_EQ(server.weights(), bytes_of_directory(next));
    }
};

TEST_F(StagingOfOthers, AFifoHoldsNobodyUp) {
    plant([](const fs::path& folder) { ::mkfifo((folder / "note.x").c_str(), 0644); });
    expect_a_push();
}

TEST_F(StagingOfOthers, ALinkWithoutEndIsNotRead) {
    plant([](const fs::path& folder) { fs::create_symlink("/dev/zero", folder / "note.x"); });
    expect_a_push();
}

// The neighbour holds the reader at a FIFO, and puts a link to the victim's folder where his own was.
TEST_F(StagingOfOthers, NothingOfTheVictimsGoes) {
    const fs::path victims = folder_ / "precious";
    fs::create_directory(victims);
    ASSERT_EQ(::chmod(victims.c_str(), 0700), 0);
    std::ofstream(victims / "model.safetensors") << "weights";
    std::ofstream(victims / "lock");
    const pid_t neighbour = start_as_nobody([&] {
        for (const fs::path& folder : names_of_the_dead()) {
            ::mkdir(folder.c_str(), 0700);
            ::mkfifo((folder / "note.a").c_str(), 0644);
            const fs::path link = staging_ / (".x" + folder.filename().string());
            fs::create_directory_symlink(victims, link);
            // Opens at once where nobody reads, as a reader that waits would be let go.
            const int fd = ::open((folder / "note.a").c_str(), O_RDWR | O_NONBLOCK);
            ::syscall(SYS_renameat2, AT_FDCWD, folder.c_str(), AT_FDCWD, link.c_str(), 2);  // RENAME_EXCHANGE
            if (::write(fd, "hello", 5) != 5) return 1;
        }
        return 0;
    });
    ASSERT_EQ(exit_code_of(neighbour), 0);
    expect_a_push();
    EXPECT_TRUE(fs::exists(victims / "model.safetensors"));
}

TEST_F(StagingOfOthers, ANoteOfAnothersEndsNoPause) {
    VllmStandIn server({.model = model("a", 1)});
    server.set_paused(true);  // by its operator
    plant([&](const fs::path& folder) { std::ofstream(folder / "note.1") << server.url(); });
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    EXPECT_TRUE(server.paused());
}

// Both the name of the lock and that of the folder of locks can be foreseen.
TEST_F(StagingOfOthers, ALockOfAnothersHoldsNobodyUp) {
    ::unsetenv("XDG_RUNTIME_DIR");
    VllmStandIn server({.model = model("a", 1)});
    const std::string port = server.url().substr(server.url().rfind(':') + 1);
    const std::string lock = "tandem-push.vllm___loopback_" + port + ".lock";
    int held[2];
    ASSERT_EQ(::pipe2(held, O_CLOEXEC), 0);
    const pid_t neighbour = start_as_nobody([&] {
        const fs::path folder = staging_ / ("tandem-" + std::to_string(0));
        ::mkdir(folder.c_str(), 0777);
        std::vector<int> fds;
        for (const fs::path& file : {staging_ / lock, folder / lock}) {
            const int fd = ::open(file.c_str(), O_RDWR | O_CREAT, 0600);
            if (::flock(fd, LOCK_EX) != 0 || ::ftruncate(fd, off_t{1} << 40) != 0) return 1;  // sparse
        }
        if (::write(held[1], "x", 1) != 1) return 2;
        ::pause();
        return 0;
    });
    char byte = 0;
    ASSERT_EQ(::read(held[0], &byte, 1), 1);
    const auto outcome = push(model("b", 2), {server.url()})[0];
    EXPECT_TRUE(outcome.whole) << outcome.error;
    ::kill(neighbour, SIGKILL);
    exit_code_of(neighbour);
    for (const int end : held) ::close(end);
}

// Of another PID namespace, as containers that share /dev/shm have: the lock tells, no number does.
TEST_F(StagingOfOthers, WhatADeadPusherOfAnotherNamespaceLeftIsRemoved) {
    test::Forked pusher([&](const std::string& url) {
        if (::unshare(CLONE_NEWPID) != 0) return 77;
        const pid_t inside = ::fork();
        if (inside == 0) {
            const auto mine = stage();
            mine.note(url);
            ::_exit(0);
        }
        return exit_code_of(inside);
    });
    VllmStandIn server({.model = model("a", 1)});
    server.set_paused(true);
    ASSERT_EQ(pusher.act(server.url()), 0);
    ASSERT_EQ(staged().size(), 1u);
    EXPECT_TRUE(push(model("b", 2), {server.url()})[0].whole);
    EXPECT_FALSE(server.paused());
    EXPECT_THAT(staged(), IsEmpty());
}

}  // namespace
}  // namespace tandem::sync
