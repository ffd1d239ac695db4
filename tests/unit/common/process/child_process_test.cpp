// A child that runs a program: what it is given, what it says, how it ends.
#include "common/process/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/support/soon.h"

namespace tandem {
namespace {

using test::soon;

using test::error_of;
using ::testing::HasSubstr;

ChildOptions shell(const std::string& script) {
    return {.command = {"sh", "-c", script}};
}

int exit_code_of(const ChildOptions& options) {
    const ChildProcess child(options);
    const auto end = child.wait(soon());
    EXPECT_TRUE(end && end->known);
    return end ? end->exit_code : -1;
}

// A file in memory that holds the text.
FileDescriptor file_of(const std::string& text) {
    FileDescriptor file(::memfd_create("text", MFD_CLOEXEC));
    EXPECT_EQ(::pwrite(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    return file;
}

TEST(ChildProcess, AnswersLineByLine) {
    ChildOptions options = shell("while read x; do echo got $x; echo more; done; printf 'no end'");
    options.piped = true;
    ChildProcess child(options);
    EXPECT_EQ(child.ask("one", soon()), "got one");
    EXPECT_EQ(child.read_line(soon()), "more");
    EXPECT_EQ(child.ask("two", soon()), "got two");
    EXPECT_EQ(child.read_line(soon()), "more");
    EXPECT_THROW(child.read_line(Deadline::after_ms(1)), DeadlineExceeded);
    EXPECT_FALSE(child.ended());
    child.kill();
    EXPECT_EQ(child.read_line(soon()), "");
    EXPECT_EQ(child.ended()->signal, SIGKILL);
}

TEST(ChildProcess, ReadsNothingUnlessItIsGivenAnInput) {
    EXPECT_EQ(exit_code_of(shell("read x && exit 1; exit 7")), 7);
    const FileDescriptor input = file_of("x\n");
    ChildOptions options = shell("read x; test \"$x\" = x");
    options.descriptors = {{input.get(), STDIN_FILENO}};
    EXPECT_EQ(exit_code_of(options), 0);
}

// Each stands where the other one was.
TEST(ChildProcess, DescriptorsAreWhereTheyWereAskedFor) {
    const FileDescriptor one = file_of("one"), two = file_of("two");
    ChildOptions options = shell("test \"$(cat /proc/self/fd/$1)$(cat /proc/self/fd/$2)\" = twoone");
    options.command.insert(options.command.end(),
                           {"sh", std::to_string(one.get()), std::to_string(two.get())});
    options.descriptors = {{one.get(), two.get()}, {two.get(), one.get()}};
    EXPECT_EQ(exit_code_of(options), 0);
    options.descriptors = {{two.get(), one.get()}};
    options.command[2] = "test \"$(cat /proc/self/fd/$1)\" = two && ! test -e /proc/self/fd/$2";
    EXPECT_EQ(exit_code_of(options), 0) << "the other one is nobody's";
}

TEST(ChildProcess, HasThisProcessesEnvironmentOrItsOwn) {
    ::setenv("TANDEM_TEST_CHILD", "here", 1);
    ChildOptions options = shell("test \"$TANDEM_TEST_CHILD\" = \"$1\"");
    options.command.insert(options.command.end(), {"sh", "here"});
    EXPECT_EQ(exit_code_of(options), 0);
    options.environment = {"TANDEM_TEST_CHILD=there"};
    options.command.back() = "there";
    EXPECT_EQ(exit_code_of(options), 0);
    ::unsetenv("TANDEM_TEST_CHILD");
}

TEST(ChildProcess, JoinsAGroup) {
    ChildOptions options = shell("exec sleep 60");
    const ChildProcess ours(options);
    EXPECT_EQ(::getpgid(ours.pid()), ::getpgid(0));
    options.group = 0;
    const ChildProcess own(options);
    EXPECT_EQ(::getpgid(own.pid()), own.pid());
    options.group = own.pid();
    const ChildProcess same(options);
    EXPECT_EQ(::getpgid(same.pid()), own.pid());
}

TEST(ChildProcess, IsAskedToEndAndHasItsTime) {
    const std::string file = ::testing::TempDir() + "child_process_" + std::to_string(::getpid());
    ChildOptions options =
        shell("trap 'sleep 0.1; touch \"$1\"; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    options.command.insert(options.command.end(), {"sh", file});
    options.piped = true;
    for (const bool patient : {false, true}) {
        options.patience = std::chrono::milliseconds(patient ? 20'000 : 0);
        {
            ChildProcess child(options);
            EXPECT_EQ(child.read_line(soon()), "ready");
            if (patient) child.signal(SIGTERM);
        }
        EXPECT_EQ(std::filesystem::remove(file), patient);
    }
}

TEST(ChildProcess, SaysWhatCannotRun) {
    EXPECT_THAT(error_of([] { ChildProcess child({.command = {"tandem-nothing"}}); }),
                HasSubstr("exec of 'tandem-nothing': No such file"));
    EXPECT_THAT(error_of([] { ChildProcess child({.command = {"sh"}, .program = "/etc/passwd"}); }),
                HasSubstr("exec of '/etc/passwd': Permission denied"));
    EXPECT_THAT(error_of([] {
                    ChildProcess child({.command = {"sh"}, .descriptors = {{-1, 5}}});
                }),
                HasSubstr("Bad file descriptor"));
}

}  // namespace
}  // namespace tandem
