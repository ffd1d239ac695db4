// When a bucket that is sent over TCP is the trainer's memory again.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include "common/error.h"
#include "engine_adapter/transport/tcp/handshake.h"
#include "engine_adapter/transport/tcp/sender.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

// More than a socket of either end takes.
constexpr std::size_t kSentBytes = 32 << 20;

struct Line {
    Line() {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            throw SystemError("socketpair", errno);
        engine = FileDescriptor(ends[0]);
        std::vector<FileDescriptor> sockets;
        sockets.emplace_back(ends[1]);
        sender.emplace(std::move(sockets));
    }
    void post(std::uint64_t serial) {
        PackedBucket bucket;
        bucket.add(memory.data(), 1, memory.size(), 0);
        sender->post(serial, std::move(bucket));
    }
    // All that is sent, up to the end of the bucket with this serial.
    void take_bucket(std::uint64_t serial) const {
        std::vector<std::byte> bytes;
        for (;;) {
            tcp::FrameHeader header;
            ASSERT_EQ(::recv(engine.get(), &header, sizeof(header), MSG_WAITALL), ssize_t{sizeof(header)});
            ASSERT_EQ(header.serial, serial);
            bytes.resize(header.bytes);
            ASSERT_EQ(::recv(engine.get(), bytes.data(), bytes.size(), MSG_WAITALL), std::ssize(bytes));
            if (header.offset + header.bytes == header.total) return;
        }
    }

    std::vector<std::byte> memory = std::vector<std::byte>(kSentBytes);
    FileDescriptor engine;
    std::optional<TcpSender> sender;  // last: ended before the memory that it reads
};

TEST(TcpSender, ABucketIsSentWhenAllOfItIsTaken) {
    Line line;
    line.post(0);
    line.post(1);
    EXPECT_FALSE(line.sender->wait_sent(0, Deadline::after_ms(50)));
    line.take_bucket(0);
    EXPECT_TRUE(line.sender->wait_sent(0, test::soon()));
    EXPECT_FALSE(line.sender->wait_sent(1, Deadline::after_ms(50)));
    line.take_bucket(1);
    EXPECT_TRUE(line.sender->wait_sent(1, test::soon()));
    EXPECT_EQ(line.sender->failure(), "");
}

TEST(TcpSender, NobodyWaitsForAConnectionThatHasEnded) {
    Line line;
    line.post(0);
    EXPECT_FALSE(line.sender->wait_sent(0, Deadline::after_ms(50)));
    line.engine = {};
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(line.sender->wait_sent(0, test::soon()));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_THAT(line.sender->failure(), testing::HasSubstr("data connection"));
}

}  // namespace
}  // namespace tandem::engine
