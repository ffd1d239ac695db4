// The slots of an engine's end, over sockets that the test writes to: when one is another bucket's.
#include "engine_adapter/transport/tcp/member.h"

#include <gmock/gmock.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/soon.h"

namespace tandem::engine {
namespace {

using test::soon;

using test::error_of;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = 4096;

// A trainer's end of one data connection.
class Sends {
  public:
    Sends(TcpMember& member, const std::string& peer) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            throw SystemError("socketpair", errno);
        ours_ = FileDescriptor(ends[0]);
        member.add(FileDescriptor(ends[1]), peer);
    }
    void header(const tcp::FrameHeader& header) { write(&header, sizeof(header)); }
    void bytes(std::size_t count, int value) {
        const std::vector<std::byte> data(count, static_cast<std::byte>(value));
        write(data.data(), count);
    }
    // Behind a frame's header: its bytes have a place.
    void wait_until_read() const {
        ASSERT_TRUE(test::eventually([&] {
            int unread = 1;
            return ::ioctl(ours_.get(), TIOCOUTQ, &unread) == 0 && unread == 0;
        }));
    }
    void end() { ours_ = {}; }

  private:
    void write(const void* data, std::size_t bytes) {
        ASSERT_EQ(::send(ours_.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    }

    FileDescriptor ours_;
};

class GivenUp : public testing::Test {
  protected:
    // Half of a frame of bucket 0 came when bucket 0 is over; then all of the bucket that has its slot next.
    void SetUp() override {
        half_.header({0, 0, kBytes, kBytes});
        half_.bytes(kBytes / 2, 1);
        half_.wait_until_read();
        member_.release(0);
        next_.header({kNext, 0, 2 * kBytes, 2 * kBytes});
        next_.bytes(2 * kBytes, 2);
    }
    const std::byte* receive_next(Deadline deadline) {
        return member_.receive(kNext, 2 * kBytes, "load", deadline, [] {});
    }

    static constexpr std::uint64_t kNext = TcpMember::kSlots;
    TcpMember member_;
    Sends half_{opened(), "one:1"};
    Sends next_{member_, "another:2"};

  private:
    TcpMember& opened() {
        member_.open(2 * kBytes);
        return member_;
    }
};

TEST_F(GivenUp, ItsSlotIsTheNextBucketsWhenTheFrameIsOver) {
    EXPECT_THAT(error_of([&] { receive_next(Deadline::after_ms(100)); }), HasSubstr("0.0 of 0.0 MiB"));
    half_.bytes(kBytes / 2, 1);
    const std::byte* const data = receive_next(soon());
    EXPECT_EQ(std::count(data, data + 2 * kBytes, std::byte{2}), 2 * kBytes);
}

TEST_F(GivenUp, AFrameThatNeverEndsIsAFailureByName) {
    half_.end();
    EXPECT_THAT(error_of([&] { receive_next(soon()); }),
                HasSubstr("data connection of one:1: it ends in the middle of a frame"));
}

TEST_F(GivenUp, ConnectionsThatAreMadeAgainFindTheSlotFree) {
    member_.open(2 * kBytes);
    Sends again(member_, "one:3");
    again.header({0, 0, kBytes, kBytes});
    again.bytes(kBytes, 3);
    const std::byte* const data = member_.receive(0, kBytes, "load", soon(), [] {});
    EXPECT_EQ(std::count(data, data + kBytes, std::byte{3}), kBytes);
}

TEST_F(GivenUp, AFrameThatComesLaterIsRefused) {
    Sends late(member_, "late:4");
    late.header({0, 0, 64, kBytes});
    EXPECT_THAT(error_of([&] { receive_next(soon()); }),
                HasSubstr("a frame of bucket number 0, which is over"));
}

TEST_F(GivenUp, AFrameThatWaitsLongerThanItsBucketLivesIsRefused) {
    for (std::uint64_t serial = 1; serial <= kNext; ++serial) member_.release(serial);
    EXPECT_THAT(error_of([&] { member_.receive(kNext + 1, kBytes, "load", soon(), [] {}); }),
                HasSubstr("data connection of another:2: a frame of bucket number 3, which is over"));
}

}  // namespace
}  // namespace tandem::engine
