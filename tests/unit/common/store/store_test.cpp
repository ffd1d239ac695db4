// One set of expectations for the three stores, and what only the TCP store can get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/store/store.h"
#include "tests/support/error_of.h"
#include "tests/support/free_port.h"
#include "tests/support/ipv6.h"
#include "tests/support/silent_port.h"
#include "tests/support/soon.h"
#include "tests/unit/common/store/raw_client.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// A kind of store; open() gives another client's view of the same one.
struct Backend {
    std::shared_ptr<TcpStoreServer> server;
    std::string directory;
    std::shared_ptr<Store> memory;

    std::shared_ptr<Store> open() const {
        if (server) return connect_tcp_store("127.0.0.1", server->port(), test::soon());
        return memory ? memory : make_file_store(directory);
    }
};

class StoreTest : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (GetParam() == "memory") backend_.memory = make_memory_store();
        if (GetParam() == "tcp") backend_.server = std::make_shared<TcpStoreServer>("127.0.0.1", 0);
        if (GetParam() == "file")
            backend_.directory = directory_ = ::testing::TempDir() + "store_" + std::to_string(::getpid());
    }
    void TearDown() override {
        if (!directory_.empty()) std::filesystem::remove_all(directory_);
    }
    Backend backend_;
    std::string directory_;
};

TEST_P(StoreTest, KeepsBytes) {
    const auto one = backend_.open();
    const auto other = backend_.open();
    std::string all;
    for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
    const std::string large(1'000'000, 'x');
    one->set("a/b ../..", all);
    one->set("", "empty key");
    one->set("large", large);
    one->set("twice", "first");
    one->set("twice", "");
    const auto deadline = test::soon();
    EXPECT_EQ(other->get("a/b ../..", deadline), all);
    EXPECT_EQ(other->get("", deadline), "empty key");
    EXPECT_EQ(other->get("large", deadline), large);
    EXPECT_EQ(other->get("twice", deadline), "");
}

TEST_P(StoreTest, GetWaitsForTheKey) {
    const auto store = backend_.open();
    std::thread late([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        backend_.open()->set("late", "here");
    });
    EXPECT_EQ(store->get("late", test::soon()), "here");
    late.join();
}

TEST_P(StoreTest, GetGivesUpNamingTheKey) {
    const auto store = backend_.open();
    try {
        store->get("never", Deadline::after_ms(30));
        FAIL() << "no exception";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("'never'"));
    }
    store->set("never", "1");
    EXPECT_EQ(store->get("never", test::soon()), "1");  // the client goes on
}

TEST_P(StoreTest, AddsFromManyThreads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            const auto store = backend_.open();
            for (int i = 0; i < 25; ++i) store->add("sum", i % 2 == 0 ? 3 : -1);
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(backend_.open()->add("sum", 0), 4 * (13 * 3 - 12));
    EXPECT_EQ(backend_.open()->get("sum", test::soon()), std::to_string(4 * (13 * 3 - 12)));
}

TEST_P(StoreTest, AddRefusesText) {
    const auto store = backend_.open();
    store->set("text", "12 apples");
    EXPECT_THROW(store->add("text", 1), InvalidArgument);
    EXPECT_EQ(store->get("text", test::soon()), "12 apples");
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest, ::testing::Values("memory", "file", "tcp"),
                         [](const auto& info) { return info.param; });

TEST(TcpStore, PortInUse) {
    const TcpStoreServer server("127.0.0.1", 0);
    try {
        const TcpStoreServer second("127.0.0.1", server.port());
        FAIL() << "no exception";
    } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(server.port())));
    }
}

TEST(TcpStore, NobodyListens) {
    int port = 0;
    { port = TcpStoreServer("127.0.0.1", 0).port(); }
    try {
        connect_tcp_store("127.0.0.1", port, Deadline::after_ms(120));
        FAIL() << "no exception";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("refused"));
    }
}

// The system's own patience with an address that does not answer is two minutes.
TEST(TcpStore, NobodyAnswers) {
    const test::SilentPort silent;
    const auto start = std::chrono::steady_clock::now();
    try {
        connect_tcp_store("127.0.0.1", silent.port(), Deadline::after_ms(300));
        FAIL() << "no exception";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(silent.port()) + ": no answer"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(TcpStore, ListensAtAllAddressesOfItsHost) {
    const TcpStoreServer server("localhost", 0);
    std::vector<std::string> hosts{"127.0.0.1"};
    if (test::has_ipv6()) hosts.emplace_back("::1");
    for (const std::string& host : hosts) {
        const auto store = connect_tcp_store(host, server.port(), test::soon());
        store->set(host, "seen");
        EXPECT_EQ(store->get(host, test::soon()), "seen");
    }
    EXPECT_TRUE(server.loopback());
}

// "localhost" is 127.0.0.1, then ::1.
TEST(TcpStore, ASilentAddressLeavesTimeToTheNext) {
    const test::SilentPort silent;
    if (!test::has_ipv6()) {
        EXPECT_THAT(
            test::error_of([&] { connect_tcp_store("localhost", silent.port(), Deadline::after_ms(2'000)); }),
            HasSubstr("[::1]:" + std::to_string(silent.port())));
        return;
    }
    const TcpStoreServer server("::1", silent.port());
    const auto store = connect_tcp_store("localhost", silent.port(), test::soon());
    store->set("a", "1");
    EXPECT_EQ(store->get("a", test::soon()), "1");
}

// One that is silent, and answers later.
TEST(TcpStore, RankZerosHostMayBeSilentAtFirst) {
    const int port = test::free_port();
    auto silent = std::make_unique<test::SilentPort>("127.0.0.1", port);
    std::optional<TcpStoreServer> server;
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        silent.reset();
        server.emplace("127.0.0.1", port);
    });
    const auto store = connect_tcp_store("127.0.0.1", port, test::soon());
    later.join();
    store->set("a", "1");
    EXPECT_EQ(store->get("a", test::soon()), "1");
}

TEST(TcpStore, ServerGoesAway) {
    auto server = std::make_unique<TcpStoreServer>("127.0.0.1", 0);
    const auto store = connect_tcp_store("127.0.0.1", server->port(), test::soon());
    store->set("a", "1");
    server.reset();
    EXPECT_THROW(store->set("a", "2"), TransportError);
}

// A stranger's bytes: sizes of four gigabytes. The server hangs up and goes on serving others.
TEST(TcpStore, RefusesOversizeRequests) {
    const TcpStoreServer server("127.0.0.1", 0);
    RawClient stranger(server.port());
    stranger.greeting();
    ASSERT_TRUE(stranger.send(request(wire::Operation::set, 0xffff'ffff, 0xffff'ffff)));
    EXPECT_TRUE(stranger.closed());
    const auto store = connect_tcp_store("127.0.0.1", server.port(), test::soon());
    store->set("still", "there");
    EXPECT_THROW(store->set(std::string(5000, 'k'), ""), InvalidArgument);
    EXPECT_EQ(store->get("still", test::soon()), "there");
}

}  // namespace
}  // namespace tandem
