// What another user of this machine can do: connect in vain, and open nothing. Runs as root, which can become one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <sstream>

#include "common/comm/ipc/job.h"
#include "common/device/announced_memory.h"
#include "common/error.h"
#include "common/http/client.h"
#include "tests/multiproc/engine/program.h"
#include "tests/multiproc/other_user/as_nobody.h"
#include "tests/support/soon.h"
#include "tests/unit/common/model/temporary_directory.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem {
namespace {

using test::soon;

using test::exit_code_of;
using test::start_as_nobody;
using ::testing::HasSubstr;

// A connected socket of an abstract name, or -1.
int connect_to(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), size) == 0) return fd;
    ::close(fd);
    return -1;
}

// 1 when the receiver said anything to us.
int burst(const std::string& name, int connections) {
    for (int i = 0; i < connections; ++i) {
        const int fd = connect_to(name);
        if (fd < 0) return 2;
        const std::string hello(64, 'h');
        [[maybe_unused]] const ssize_t sent = ::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL);
        char byte = 0;
        if (::recv(fd, &byte, 1, 0) > 0) return 1;
        ::close(fd);
    }
    return 0;
}

std::ptrdiff_t lines_with(const std::string& text, const std::string& word) {
    std::istringstream in(text);
    std::ptrdiff_t count = 0;
    for (std::string line; std::getline(in, line);) count += line.find(word) != std::string::npos ? 1 : 0;
    return count;
}

class OtherUser : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(::getuid(), 0U) << "leave these tests out with ctest -LE root"; }
};

TEST_F(OtherUser, NeitherReachesTheReceiverNorFillsTheLog) {
    const model::TemporaryDirectory directory;
    engine::write_tiny_model(directory.path(), engine::tiny_config(), 3);
    engine::Program program(
        {"serve", "--model", directory.path(), "--listen", "127.0.0.1:0", "--threads", "1"});
    const std::string url = program.url();
    ASSERT_FALSE(url.empty()) << program.output();
    const std::string receiver =
        http::Client(url).get_json("/model_info", soon())["tandem"]["receiver"].get<std::string>();
    const std::string name = receiver.substr(receiver.find(':') + 1);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(exit_code_of(start_as_nobody([&] { return burst(name, 2000); })), 0);
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start).count();
    // Our own user still finds the seat free.
    const int own = connect_to(name);
    ASSERT_GE(own, 0);
    char byte = 0;
    ::usleep(200'000);
    EXPECT_EQ(::recv(own, &byte, 1, MSG_DONTWAIT), -1);
    EXPECT_EQ(errno, EAGAIN) << "the receiver hung up on its own user";
    ::close(own);
    program.signal(SIGTERM);
    EXPECT_EQ(program.wait(), 0);
    const auto lines = lines_with(program.output(), "receiver");
    EXPECT_GE(lines, 1) << program.output();
    EXPECT_LE(lines, 2 + seconds) << program.output();
}

TEST_F(OtherUser, CannotOpenARanksMemory) {
    const auto job = comm::ipc::Job::create(2, std::size_t{4} << 20);
    const std::string path = announced_path(job->fd());
    ASSERT_GE(::close(open_announced(path)), 0);  // our own user can
    const pid_t other = start_as_nobody([&] {
        for (const int how : {O_RDWR, O_RDONLY, O_WRONLY, O_PATH}) {
            if (::open(path.c_str(), how | O_CLOEXEC) >= 0) return 1;
        }
        try {
            open_announced(path);
        } catch (const SystemError&) {
            return 0;
        }
        return 2;
    });
    EXPECT_EQ(exit_code_of(other), 0);
}

// A job that somebody else has made, announced to ranks that could open it: root's can.
TEST_F(OtherUser, MemoryOfItsIsNotOpened) {
    int made[2], done[2];
    ASSERT_EQ(::pipe2(made, O_CLOEXEC), 0);
    ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
    const pid_t other = start_as_nobody([&] {
        const auto job = comm::ipc::Job::create(2, std::size_t{4} << 20);
        const int fd = job->fd();
        ::close(done[1]);
        if (::write(made[1], &fd, sizeof(fd)) != sizeof(fd)) return 1;
        char byte = 0;
        return ::read(done[0], &byte, 1) == 0 ? 0 : 2;
    });
    int fd = -1;
    ASSERT_EQ(::read(made[0], &fd, sizeof(fd)), static_cast<ssize_t>(sizeof(fd)));
    const std::string path = fmt::format("/proc/{}/fd/{}", other, fd);
    const int possible = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(possible, 0) << "the test proves nothing: " << std::strerror(errno);
    ::close(possible);
    try {
        open_announced(path);
        ADD_FAILURE() << "opened";
    } catch (const BadInput& error) {
        EXPECT_THAT(error.what(), HasSubstr("memory of user 65534"));
    }
    ::close(done[1]);
    EXPECT_EQ(exit_code_of(other), 0);
    for (const int end : {made[0], made[1], done[0]}) ::close(end);
}

}  // namespace
}  // namespace tandem
