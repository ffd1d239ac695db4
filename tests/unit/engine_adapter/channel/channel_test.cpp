// Frames over a socket pair: descriptors beside them, sizes, peers that stop in the middle.
#include "engine_adapter/channel/channel.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "common/device/shared_arena.h"
#include "common/thread.h"
#include "engine_adapter/channel/connection.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

using test::soon;

using testing::HasSubstr;

class ChannelTest : public testing::Test {
  protected:
    ChannelTest() {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        right_socket_ = ends[1];
        left_.emplace(FileDescriptor(ends[0]), "right");
        right_.emplace(FileDescriptor(ends[1]), "left");
    }
    std::optional<Channel> left_, right_;
    int right_socket_ = -1;
};

TEST_F(ChannelTest, SeveralDescriptorsArriveInTheirOrder) {
    std::vector<SharedArena> arenas;
    std::vector<int> fds;
    for (std::size_t i = 0; i < kMaxDescriptors; ++i) {
        arenas.push_back(SharedArena::create("channel", 4096));
        std::memset(arenas[i].data(), static_cast<int>(i), 4096);
        fds.push_back(arenas[i].fd());
    }
    for (const std::size_t count : {kMaxDescriptors, std::size_t{0}, std::size_t{3}}) {
        left_->send({{"n", count}}, "send", soon(), {}, {fds.data(), count});
        Message message = right_->receive("receive", soon());
        ASSERT_EQ(message.header["n"], count);
        ASSERT_EQ(message.fds.size(), count);
        for (std::size_t i = 0; i < count; ++i) {
            const SharedArena mapped = SharedArena::open_read_only(message.fds[i].release(), 4096);
            EXPECT_EQ(std::to_integer<std::size_t>(mapped.data()[4095]), i);
        }
    }
}

TEST_F(ChannelTest, TooManyDescriptorsAreRefusedOnBothEnds) {
    const SharedArena arena = SharedArena::create("channel", 4096);
    const std::vector<int> fds(kMaxDescriptors + 1, arena.fd());
    EXPECT_THROW(left_->send(nlohmann::json::object(), "send", soon(), {}, fds), InvalidArgument);
    // A peer that does not ask.
    std::array<std::byte, 8> lengths{};
    iovec part{lengths.data(), lengths.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE((kMaxDescriptors + 1) * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    ASSERT_EQ(::sendmsg(left_->fd(), &message, 0), 8);
    EXPECT_THROW(right_->receive("receive", soon()), MalformedMessage);
}

TEST_F(ChannelTest, AProcessWithoutDescriptorsSaysThatItHasNoneLeft) {
    const SharedArena arena = SharedArena::create("channel", 4096);
    left_->send(nlohmann::json::object(), "send", soon(), {}, std::vector<int>(3, arena.fd()));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const int free_from = ::dup(0);  // the lowest one
    ::close(free_from);
    const rlimit few{static_cast<rlim_t>(free_from) + 1, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    std::string said;
    try {
        right_->receive("receive", soon());
    } catch (const MalformedMessage& error) {
        said = error.what();
    }
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_THAT(said, HasSubstr("has no file descriptors left (ulimit -n)"));
    EXPECT_THAT(said, testing::Not(HasSubstr("more than")));
}

TEST_F(ChannelTest, ALargePayloadArrivesWhole) {
    const SharedArena arena = SharedArena::create("channel", 4096);
    std::vector<std::byte> payload(20u << 20);
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 7 >> 8);
    const int fd = arena.fd();
    auto sent = std::async(std::launch::async, [&] {
        left_->send({{"op", "x"}}, "send", soon(), {payload.data(), payload.size()}, {&fd, 1});
    });
    const Message message = right_->receive("receive", soon());
    sent.get();
    EXPECT_EQ(message.payload, payload);
    EXPECT_EQ(message.fds.size(), 1u);
}

TEST_F(ChannelTest, ALengthWithoutBytesBehindItEndsAtTheDeadlineAndNamesThePeer) {
    const std::array<std::uint32_t, 2> lengths{2, 200u << 20};
    ASSERT_EQ(::send(left_->fd(), lengths.data(), sizeof(lengths), 0), 8);
    ASSERT_EQ(::send(left_->fd(), "{}", 2, 0), 2);
    try {
        right_->receive("receive", Deadline::after_ms(50));
        FAIL() << "received what nobody sent";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("receive with left"));
    }
}

TEST(ReadOnlyArena, MapsASparseFileWithoutTouchingIt) {
    constexpr std::size_t kBytes = std::size_t{64} << 30;
    const SharedArena owner = SharedArena::create("sparse", kBytes, "");
    std::memset(owner.data() + kBytes / 2, 0x77, 4096);
    const SharedArena reader = SharedArena::open_read_only(::dup(owner.fd()), kBytes);
    EXPECT_EQ(reader.data()[kBytes / 2 + 4095], std::byte{0x77});
    struct stat info {};
    ASSERT_EQ(::fstat(owner.fd(), &info), 0);
    EXPECT_LE(info.st_blocks * 512, 1 << 16);
    EXPECT_DEATH(reader.data()[kBytes / 2] = std::byte{1}, "");
}

// However slowly it writes, it is late when the time has passed.
TEST_F(ChannelTest, APeerThatWritesByteByByteIsLate) {
    std::atomic<bool> stop = false;
    auto dripping = start_call("dripping", [&] {
        const std::array<std::uint32_t, 2> lengths{1U << 20, 0};
        ::send(right_socket_, lengths.data(), sizeof lengths, MSG_NOSIGNAL);
        while (!stop && ::send(right_socket_, " ", 1, MSG_NOSIGNAL) == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    EXPECT_THROW(left_->receive("receive", Deadline::after_ms(100)), DeadlineExceeded);
    stop = true;
}

TEST_F(ChannelTest, RepliesThatNobodyAskedForEndTheConnection) {
    Connection connection(std::move(*left_));
    right_->send({{"id", 1001}, {"ok", true}}, "reply", soon());
    const std::int64_t id = connection.post({{"op", "x"}}, "x", soon());
    try {
        connection.wait(id, "x", soon());
        ADD_FAILURE() << "taken";
    } catch (const MalformedMessage& error) {
        EXPECT_THAT(error.what(), HasSubstr("a reply to request 1001, which nobody made"));
    }
}

TEST_F(ChannelTest, AReplyIsTakenOnceAndForgottenOnesAreDropped) {
    Connection connection(std::move(*left_));
    const auto answer = [&](std::int64_t id, int value) {
        right_->send({{"id", id}, {"ok", true}, {"value", value}}, "reply", soon());
    };
    const std::int64_t first = connection.post({{"op", "a"}}, "a", soon());
    const std::int64_t second = connection.post({{"op", "b"}}, "b", soon());
    const std::int64_t third = connection.post({{"op", "c"}}, "c", soon());
    connection.forget(first);
    answer(first, 1);
    answer(third, 3);
    answer(second, 2);
    EXPECT_EQ(connection.wait(second, "b", soon()).header["value"], 2);
    EXPECT_EQ(connection.wait(third, "c", soon()).header["value"], 3);
    const std::int64_t fourth = connection.post({{"op", "d"}}, "d", soon());
    answer(third, 3);  // again
    EXPECT_THROW(connection.wait(fourth, "d", soon()), MalformedMessage);
}

}  // namespace
}  // namespace tandem::engine
