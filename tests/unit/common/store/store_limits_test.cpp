// What clients can make the TCP store's server take: memory, connections, descriptors, time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <list>
#include <thread>

#include "common/error.h"
#include "common/store/store.h"
#include "common/store/store_session.h"
#include "tests/support/soon.h"
#include "tests/unit/common/store/raw_client.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::shared_ptr<Store> connect(const TcpStoreServer& server) {
    return connect_tcp_store("127.0.0.1", server.port(), test::soon());
}

bool serves(const TcpStoreServer& server) {
    connect(server)->set("still", "there");
    return connect(server)->get("still", test::soon()) == "there";
}

std::size_t resident_bytes() {
    std::size_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(StoreLimits, AnnouncedBytesTakeNoMemory) {
    const TcpStoreServer server("127.0.0.1", 0);
    const std::size_t before = resident_bytes();
    std::list<RawClient> clients;
    for (int i = 0; i < 64; ++i) {
        clients.emplace_back(server.port()).greeting();
        clients.back().send(request(wire::Operation::set, 1, wire::kMaxValue) + "k");
    }
    EXPECT_TRUE(serves(server));
    EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20));  // 64 x 16 MiB are announced
}

TEST(StoreLimits, AllBytesTogether) {
    const TcpStoreServer server("127.0.0.1", 0, {.max_bytes = std::size_t{1} << 20});
    const auto store = connect(server);
    store->set("a", std::string(400'000, 'x'));
    EXPECT_THROW(store->set("b", std::string(700'000, 'x')), Error);
    const auto again = connect(server);
    again->set("a", std::string(300'000, 'y'));  // in its own place
    EXPECT_EQ(again->get("a", test::soon()), std::string(300'000, 'y'));
    // Halves of requests count as well.
    std::list<RawClient> clients;
    int closed = 0;
    for (int i = 0; i < 8; ++i) {
        RawClient& client = clients.emplace_back(server.port());
        client.greeting();
        client.send(request(wire::Operation::set, 1, 1'000'000) + std::string(200'000, 'k'));
    }
    for (int i = 0; i < 200 && closed == 0; ++i) {
        std::this_thread::sleep_for(milliseconds(10));
        for (RawClient& client : clients) closed += client.send("k") ? 0 : 1;
    }
    EXPECT_GT(closed, 0);
    clients.clear();
    EXPECT_TRUE(serves(server));
}

TEST(StoreLimits, SessionsGiveBackWhatTheyTook) {
    StoreValues values(std::size_t{1} << 20);
    {
        StoreSession session(values, nullptr);
        const std::string set = request(wire::Operation::set, "key", std::string(100'000, 'v'));
        session.feed(set.substr(0, 50'000));
        EXPECT_FALSE(session.next());
        EXPECT_GE(values.used(), 50'000U);
        session.feed(set.substr(50'000) + request(wire::Operation::get, "key"));
        EXPECT_EQ(session.next()->size(), wire::kAnswerHeader);
        EXPECT_EQ(session.next()->size(), wire::kAnswerHeader + 100'000);
        EXPECT_GE(values.used(), 200'000U);  // the value, and the answer on its way
        EXPECT_FALSE(session.next());
        session.feed(set.substr(0, 70'000));
    }
    EXPECT_GE(values.used(), 100'000U);
    EXPECT_LT(values.used(), 101'000U);
}

// As many as one likes: keys without a value take their place too.
TEST(StoreLimits, CountOfKeys) {
    StoreValues values(std::size_t{1} << 20);
    int keys = 0;
    while (keys < 100'000 && values.set(std::to_string(keys), "")) ++keys;
    EXPECT_LT(keys, 4100);
}

TEST(StoreLimits, SumsThatDoNotFit) {
    StoreValues values(std::size_t{1} << 20);
    StoreSession session(values, nullptr);
    session.feed(request(wire::Operation::set, "k", "9223372036854775807") +
                 request(wire::Operation::add, "k", "1") +
                 request(wire::Operation::add, "k", "99999999999999999999"));
    session.next();
    EXPECT_THAT(std::string(*session.next()), HasSubstr("does not fit"));
    EXPECT_EQ(session.next()->front(), static_cast<char>(wire::Status::refused));
}

TEST(StoreLimits, SilentConnectionsMakeRoom) {
    const TcpStoreServer server("127.0.0.1", 0, {.max_connections = 4});
    const auto early = connect(server);
    early->set("early", "bird");
    std::list<RawClient> silent;
    for (int i = 0; i < 20; ++i) silent.emplace_back(server.port());
    EXPECT_TRUE(serves(server));
    EXPECT_TRUE(silent.front().greeting().empty() || silent.front().closed());
    early->set("early", "worm");  // whoever has asked something keeps its place
}

TEST(StoreLimits, BusyConnectionsAreNotPushedOut) {
    const TcpStoreServer server("127.0.0.1", 0, {.max_connections = 3});  // one is a newcomer's
    const auto one = connect(server), two = connect(server);
    one->set("a", "1");
    two->set("b", "2");
    EXPECT_ANY_THROW(serves(server));
    one->set("a", "3");
    two->set("b", "4");
}

TEST(StoreLimits, RequestsThatNeverEnd) {
    const TcpStoreServer server("127.0.0.1", 0, {.patience = milliseconds(100)});
    RawClient half(server.port());
    half.greeting();
    half.send(request(wire::Operation::set, 1, 100));
    EXPECT_TRUE(half.closed());
    RawClient trickling(server.port());
    trickling.greeting();
    trickling.send(request(wire::Operation::set, 1, 1'000'000));
    int sent = 0;
    while (sent < 2000 && trickling.send("x")) {
        ++sent;
        std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_LT(sent, 2000);
}

TEST(StoreLimits, ProofsThatNeverCome) {
    const TcpStoreServer server("127.0.0.1", 0,
                                {.secret = JobSecret("0123456789abcdef"), .patience = milliseconds(100)});
    RawClient silent(server.port());
    silent.greeting();
    EXPECT_TRUE(silent.closed());
}

TEST(StoreLimits, AnswersThatNobodyReads) {
    const TcpStoreServer server("127.0.0.1", 0, {.patience = milliseconds(2000)});
    connect(server)->set("large", std::string(16'000'000, 'x'));
    RawClient deaf(server.port());
    deaf.greeting();
    deaf.send(request(wire::Operation::get, "large"));
    std::this_thread::sleep_for(milliseconds(3000));
    EXPECT_LT(deaf.receive(16'000'000).size(), 16'000'000U);
}

TEST(StoreLimits, IdleConnectionsEnd) {
    const TcpStoreServer server("127.0.0.1", 0, {.idle_timeout = milliseconds(100)});
    RawClient idle(server.port());
    idle.greeting();
    EXPECT_TRUE(idle.closed());
}

// Descriptors run out: the server waits for some to be closed, without a line of the log for each try.
TEST(StoreLimits, SurvivesWithoutDescriptors) {
    const TcpStoreServer server("127.0.0.1", 0);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    ::testing::internal::CaptureStdout();  // where lines of the log go before set_up_logging()
    const int next = ::dup(STDIN_FILENO);
    ::close(next);
    {
        const rlimit none{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = before.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
        RawClient waiting(server.port());  // takes the last one
        std::this_thread::sleep_for(milliseconds(400));
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
        EXPECT_EQ(waiting.greeting().size(), wire::kGreeting);
    }
    const std::string log = ::testing::internal::GetCapturedStdout();
    EXPECT_THAT(log, HasSubstr("cannot accept"));
    EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 2);
    EXPECT_TRUE(serves(server));
}

}  // namespace
}  // namespace tandem
