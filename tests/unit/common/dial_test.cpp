// Names that are looked up and addresses that are tried, each within its deadline.
#include "common/dial.h"

#include <gmock/gmock.h>
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "common/error.h"
#include "common/listening_sockets.h"
#include "tests/support/error_of.h"
#include "tests/support/free_port.h"
#include "tests/support/silent_port.h"
#include "tests/support/soon.h"

namespace tandem {
namespace {

using test::soon;

using test::error_of;
using test::SilentPort;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// A resolver that knows these addresses.
Lookup says(const std::vector<std::string>& hosts) {
    return [hosts](const std::string&) {
        Addresses all;
        for (const std::string& host : hosts) all.push_back(resolve(host, 0, soon()).front());
        return all;
    };
}

std::string peer_of(const FileDescriptor& socket) {
    return SocketAddress::of_other_end(socket.get()).host_port();
}

std::string at(const std::string& host, int port) {
    return host + ":" + std::to_string(port);
}

std::string refusal(const Lookup& lookup, int port, Deadline deadline) {
    return error_of([&] { dial({"node7", port, "the engine", "attach"}, deadline, 1, lookup); });
}

TEST(Dial, ASilentAddressLeavesTimeToTheNext) {
    const int port = test::free_port();
    const SilentPort silent("127.0.0.2", port);
    const ListeningSockets good = listen_at("127.0.0.3", port);
    for (const long long deadline_ms : {2'000, 20'000}) {
        const Dialled dialled =
            try_to_dial("node7", port, Deadline::after_ms(deadline_ms), 1, says({"127.0.0.2", "127.0.0.3"}));
        ASSERT_EQ(dialled.sockets.size(), 1u) << dialled.why;
        EXPECT_EQ(peer_of(dialled.sockets.front()), at("127.0.0.3", port));
    }
}

TEST(Dial, AnAddressThatRefusesIsFollowedAtOnce) {
    const int port = test::free_port();
    const ListeningSockets good = listen_at("127.0.0.3", port);
    const auto start = std::chrono::steady_clock::now();
    const auto sockets = dial({"node7", port, "the engine", "attach"}, Deadline::after(std::chrono::hours(1)),
                              3, says({"127.0.0.2", "127.0.0.4", "127.0.0.3"}));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5));
    ASSERT_EQ(sockets.size(), 3u);
    for (const FileDescriptor& socket : sockets) EXPECT_EQ(peer_of(socket), at("127.0.0.3", port));
}

TEST(Dial, WhoAnswersAfterItsTurnIsTakenToo) {
    const int port = test::free_port();
    const SilentPort slow("127.0.0.2", port);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        slow.make_room();
    });
    const Dialled dialled =
        try_to_dial("node7", port, Deadline::after_ms(60'000), 1, says({"127.0.0.2", "127.0.0.3"}));
    later.join();
    ASSERT_EQ(dialled.sockets.size(), 1u) << dialled.why;
    EXPECT_EQ(peer_of(dialled.sockets.front()), at("127.0.0.2", port));
}

TEST(Dial, AnErrorSaysWhatHappenedAtEachAddress) {
    const int port = test::free_port();
    EXPECT_THAT(refusal(says({"127.0.0.2", "127.0.0.3"}), port, soon()),
                AllOf(HasSubstr("attach with the engine: " + at("127.0.0.2", port) +
                                " (node7): Connection refused; " + at("127.0.0.3", port) +
                                " (node7): Connection refused"),
                      HasSubstr("nothing listens there; is it up, and is this its address?")));
    EXPECT_THAT(error_of([&] {
                    dial({"127.0.0.2", port, "the engine", "attach"}, soon());
                }),
                AllOf(HasSubstr(at("127.0.0.2", port) + ": Connection refused"), Not(HasSubstr("("))));
    const SilentPort silent("127.0.0.2", port);
    EXPECT_THAT(refusal(says({"127.0.0.2", "127.0.0.3"}), port, Deadline::after_ms(200)),
                AllOf(HasSubstr(at("127.0.0.2", port) + " (node7): no answer; " + at("127.0.0.3", port)),
                      HasSubstr("the deadline has passed")));
    EXPECT_THROW(dial({"127.0.0.2", port, "the engine", "attach"}, Deadline::after_ms(50)), DeadlineExceeded);
}

TEST(Dial, ANameWithoutAddressAndOneThatNobodyKnowsInTime) {
    const auto unknown = [](const std::string&) -> Addresses { throw BadInput("Name or service not known"); };
    EXPECT_THAT(refusal(unknown, 80, soon()),
                HasSubstr("attach with the engine: 'node7' has no address: Name or service not known"));
    std::promise<void> go;
    const auto answered = go.get_future().share();
    const auto mute = [answered](const std::string&) -> Addresses {
        answered.wait();
        throw BadInput("never mind");
    };
    EXPECT_THAT(refusal(mute, 80, Deadline::after_ms(50)),
                AllOf(HasSubstr("attach with the engine"), HasSubstr("look-up of 'node7'"),
                      HasSubstr("no answer before the deadline")));
    go.set_value();
}

TEST(Dial, Ipv6AddressesAreNamedInBrackets) {
    const int port = test::free_port();
    EXPECT_THAT(error_of([&] {
                    dial({"::1", port, "the engine", "attach"}, soon());
                }),
                HasSubstr("with the engine: [::1]:" + std::to_string(port) + ": "));
    Addresses both = says({"::1", "127.0.0.1"})("");
    EXPECT_FALSE(both[0] == both[1]);
    EXPECT_TRUE(both[0].loopback() && both[1].loopback());
    both[0].set_port(7);
    EXPECT_EQ(both[0].host_port(), "[::1]:7");
}

TEST(Resolve, ASlowLookupEndsWithTheDeadlineAndIsSharedByName) {
    std::promise<void> go;
    const auto answered = go.get_future().share();
    std::atomic<int> lookups{0};
    const Lookup slow = [&, answered](const std::string&) {
        ++lookups;
        answered.wait();
        return says({"127.0.0.1"})("");
    };
    for (int i = 0; i < 3; ++i)
        EXPECT_THROW(resolve("slow.example", 80, Deadline::after_ms(20), slow), DeadlineExceeded);
    EXPECT_EQ(lookups, 1);
    go.set_value();
    EXPECT_EQ(resolve("slow.example", 80, soon(), slow).size(), 1u);
    const Lookup none = [](const std::string&) -> Addresses { throw BadInput("not known"); };
    EXPECT_THROW(resolve("no.example", 80, soon(), none), BadInput);
    EXPECT_EQ(resolve("LocalHost", 81, Deadline::after_ms(0), none).size(), 2u);
    EXPECT_EQ(resolve("127.0.0.1", 81, Deadline::after_ms(0), none).front().port(), 81);
}

}  // namespace
}  // namespace tandem
