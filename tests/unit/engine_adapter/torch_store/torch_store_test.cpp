// The torch store's server at its sockets: what clients of all kinds can do to it and to each other.
#include "engine_adapter/torch_store/torch_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <list>
#include <thread>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/support/eventually.h"
#include "tests/support/soon.h"
#include "tests/unit/common/store/raw_client.h"
#include "tests/unit/engine_adapter/torch_store/words.h"

namespace tandem::engine {
namespace {

using test::soon;

using namespace torch_store;
using std::chrono::milliseconds;
using test::error_of;
using test::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A client that has said who it is.
class Peer : public RawClient {
  public:
    explicit Peer(const TorchStore& store) : RawClient(store.port()) { send(validate()); }
    std::string ping() {
        send(ask(Operation::ping, number<std::uint32_t>(7)));
        return receive(4);
    }
};

bool serves(const TorchStore& store) {
    return Peer(store).ping() == number<std::uint32_t>(7);
}

std::size_t descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(TorchStore, NamesAreThoseOfClients) {
    TorchStore store("127.0.0.1", 0);
    Peer peer(store);
    store.set("group/0", "id");
    peer.send(get("/group/0") + set("/group/1", "theirs"));
    EXPECT_EQ(peer.receive(10), text("id"));
    EXPECT_EQ(store.get("group/1", soon()), "theirs");
    EXPECT_EQ(store.add("group/2", 3), 3);
    peer.send(ask(Operation::add, text("/group/2") + number<std::int64_t>(-1)));
    EXPECT_EQ(peer.receive(8), number<std::int64_t>(2));
    EXPECT_EQ(store.get("group/2", soon()), "2");
}

TEST(TorchStore, BothSidesWaitForEachOther) {
    TorchStore store("127.0.0.1", 0);
    Peer first(store), second(store);
    first.send(ask_keys(Operation::wait, {"/a/0", "/a/1"}));
    second.send(ask_keys(Operation::wait, {"/a/1"}));
    ASSERT_TRUE(eventually([&] { return store.awaited() == std::set<std::string>{"a/0", "a/1"}; }));
    store.set("a/1", "1");
    EXPECT_EQ(second.receive(1), kStop);
    EXPECT_THAT(store.awaited(), ElementsAre("a/0"));
    auto answer = std::async(std::launch::async, [&] { return store.get("b", soon()); });
    EXPECT_THAT(store.awaited(), ElementsAre("a/0"));  // of clients only
    second.send(set("/b", "from the second"));
    EXPECT_EQ(answer.get(), "from the second");
    store.set("a/0", "0");
    EXPECT_EQ(first.receive(1), kStop);
}

TEST(TorchStore, GetEndsAtItsDeadline) {
    TorchStore store("127.0.0.1", 0);
    try {
        store.get("never", Deadline::after_ms(30));
        FAIL() << "there is nothing to get";
    } catch (const DeadlineExceeded& error) {
        EXPECT_THAT(error.what(), HasSubstr("'never'"));
        EXPECT_THAT(error.what(), HasSubstr("the clients of the torch store"));
    }
    store.set("never", "after all");
    EXPECT_EQ(store.get("never", Deadline::after_ms(0)), "after all");
}

TEST(TorchStore, WhatItDoesNotTake) {
    TorchStore store("127.0.0.1", 0, {.max_bytes = 100'000});
    EXPECT_THROW(store.set(std::string(kMaxKey, 'k'), ""), InvalidArgument);
    EXPECT_THROW(store.set("k", std::string(kMaxValue + 1, 'v')), InvalidArgument);
    EXPECT_THAT(error_of([&] { store.set("k", std::string(100'000, 'v')); }), HasSubstr("is full"));
    store.set("n", "no number");
    EXPECT_THROW(store.add("n", 1), ProtocolError);
    EXPECT_THROW(TorchStore("no.such.host.invalid", 0), BadInput);
    EXPECT_THROW(TorchStore("127.0.0.1", store.port()), SystemError);
}

TEST(TorchStore, EndsWithItsClientsWaiting) {
    const std::size_t before = descriptors();
    auto store = std::make_unique<TorchStore>("127.0.0.1", 0);
    std::list<Peer> peers;
    for (int i = 0; i < 20; ++i) peers.emplace_back(*store).send(ask_keys(Operation::wait, {"/never"}));
    ASSERT_TRUE(eventually([&] { return store->awaited().size() == 1; }));
    store.reset();
    for (Peer& peer : peers) EXPECT_TRUE(peer.closed());
    peers.clear();
    EXPECT_EQ(descriptors(), before);
}

TEST(TorchStore, StrangersEndAlone) {
    TorchStore store("127.0.0.1", 0);
    Peer waiting(store);
    waiting.send(ask_keys(Operation::wait, {"/k"}));
    RawClient browser(store.port());
    browser.send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(browser.closed());
    Peer oversize(store);
    oversize.send(ask(Operation::set, text("/k") + number<std::uint64_t>(kMaxValue + 1)));
    EXPECT_TRUE(oversize.closed());
    Peer truncated(store);
    truncated.send(set("/k", "value").substr(0, 15));
    truncated.finish();
    EXPECT_TRUE(truncated.closed());
    EXPECT_TRUE(serves(store));
    EXPECT_THAT(store.awaited(), ElementsAre("k"));  // nobody's half of a request has set it
    store.set("k", "");
    EXPECT_EQ(waiting.receive(1), kStop);
}

TEST(TorchStore, OnlyNamesThatHoldTheSecretAreAwaited) {
    TorchStore store("127.0.0.1", 0, {.secret = "secret"});
    Peer stranger(store), rank(store);
    stranger.send(ask_keys(Operation::wait, {"/x"}));
    EXPECT_TRUE(stranger.closed());
    rank.send(ask_keys(Operation::wait, {"/secret/0"}));
    ASSERT_TRUE(eventually([&] { return store.awaited() == std::set<std::string>{"secret/0"}; }));
    store.set("secret/0", "id");
    EXPECT_EQ(rank.receive(1), kStop);
}

TEST(TorchStore, StrangersWhoSpeakTheProtocolMakeRoomForRanks) {
    TorchStore store("127.0.0.1", 0, {.secret = "secret", .max_connections = 9});
    Peer rank(store);
    rank.send(ask_keys(Operation::wait, {"/secret/0"}));
    ASSERT_TRUE(eventually([&] { return store.awaited() == std::set<std::string>{"secret/0"}; }));
    std::list<Peer> strangers;
    for (int i = 0; i < 30; ++i) EXPECT_EQ(strangers.emplace_back(store).ping(), number<std::uint32_t>(7));
    Peer late(store);
    late.send(ask_keys(Operation::wait, {"/secret/0"}));
    store.set("secret/0", "id");
    EXPECT_EQ(rank.receive(1), kStop);
    EXPECT_EQ(late.receive(1), kStop);
}

TEST(TorchStore, SlowClientsEnd) {
    TorchStore store("127.0.0.1", 0, {.patience = milliseconds(200)});
    store.set("large", std::string(kMaxValue, 'v'));
    RawClient silent(store.port());
    Peer trickles(store), never_reads(store), idle(store), waits(store);
    waits.send(ask_keys(Operation::wait, {"/k"}));
    for (int i = 0; i < 4; ++i) never_reads.send(get("/large"));
    const std::string request = set("/never", "v");
    bool cut = false;
    for (std::size_t i = 0; i < request.size() - 1 && !cut; ++i) {
        cut = !trickles.send(request.substr(i, 1));
        std::this_thread::sleep_for(milliseconds(50));  // far more often than patience asks for
    }
    EXPECT_TRUE(cut || trickles.closed());
    EXPECT_TRUE(silent.closed());
    EXPECT_LT(never_reads.receive(4 * (kMaxValue + 8)).size(), 4 * (kMaxValue + 8));
    EXPECT_EQ(idle.ping(), number<std::uint32_t>(7));  // owes nothing
    store.set("k", "");
    EXPECT_EQ(waits.receive(1), kStop);
}

TEST(TorchStore, ManyConnections) {
    TorchStore store("127.0.0.1", 0, {.max_connections = 9});  // one is a newcomer's
    Peer member(store);
    EXPECT_EQ(member.ping(), number<std::uint32_t>(7));
    std::list<RawClient> silent;
    for (int i = 0; i < 30; ++i) silent.emplace_back(store.port());
    EXPECT_TRUE(silent.front().closed());  // gave its place up
    EXPECT_TRUE(serves(store));
    EXPECT_EQ(member.ping(), number<std::uint32_t>(7));
    std::list<Peer> members;
    for (int i = 0; i < 7; ++i) EXPECT_EQ(members.emplace_back(store).ping(), number<std::uint32_t>(7));
    EXPECT_EQ(Peer(store).ping(), "");  // those who belong to it stay
    members.pop_back();
    EXPECT_TRUE(eventually([&] { return serves(store); }));
}

TEST(TorchStore, ManyAtOnce) {
    TorchStore store("127.0.0.1", 0);
    constexpr int kClients = 8, kRounds = 200;
    std::list<std::thread> threads;
    for (int i = 0; i < kClients; ++i) {
        threads.emplace_back([&store] {
            Peer peer(store);
            for (int round = 1; round <= kRounds; ++round) {
                const std::string turn = "/" + std::to_string(round);
                peer.send(ask(Operation::add, text("/sum" + turn) + number<std::int64_t>(1)));
                const bool last = peer.receive(8) == number<std::int64_t>(kClients);
                peer.send((last ? set(turn, "go") : "") + ask_keys(Operation::wait, {turn}));
                ASSERT_EQ(peer.receive(1), kStop);
            }
        });
    }
    EXPECT_EQ(store.get(std::to_string(kRounds), soon()), "go");
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(store.get("sum/1", soon()), std::to_string(kClients));
}

}  // namespace
}  // namespace tandem::engine
