// The conversation of a torch store with its clients, bytes given and bytes expected.
#include "engine_adapter/torch_store/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "common/error.h"
#include "tests/support/error_of.h"
#include "tests/unit/engine_adapter/torch_store/words.h"

namespace tandem::engine::torch_store {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kRoom = std::size_t{1} << 20;

class Client {
  public:
    explicit Client(Keys& keys) : session_(keys, [this] { ++woken; }) { say(validate()); }

    // All answers to `bytes` and to what was asked before.
    std::string say(const std::string& bytes) {
        session_.feed(bytes);
        return hear();
    }
    std::string hear() {
        std::string heard;
        while (true) {
            session_.work();
            const std::string answers(session_.answers());
            session_.sent();
            if (answers.empty()) return heard;
            heard += answers;
        }
    }
    Session& session() { return session_; }

    int woken = 0;

  private:
    Session session_;
};

class TorchSession : public ::testing::Test {
  protected:
    Keys keys{kRoom};
    Client a{keys}, b{keys};
};

TEST_F(TorchSession, TheBytesOfAJoin) {
    Session session(keys, [] {});
    // As a client of PyTorch 2.13 sends them: VALIDATE, PING with its process id, and ADD "init/" 1.
    session.feed(std::string("\x00\xCE\xF7\x85\x3C", 5));
    session.work();
    EXPECT_EQ(session.answers(), "");
    session.feed(std::string("\x0D\x39\x30\x00\x00", 5));
    session.work();
    EXPECT_EQ(session.answers(), std::string("\x39\x30\x00\x00", 4));
    session.sent();
    session.feed(
        std::string("\x04\x05\x00\x00\x00\x00\x00\x00\x00init/\x01\x00\x00\x00\x00\x00\x00\x00", 22));
    session.work();
    EXPECT_EQ(session.answers(), std::string("\x01\x00\x00\x00\x00\x00\x00\x00", 8));
    EXPECT_EQ(*keys.find("init/"), "1");
}

TEST_F(TorchSession, Values) {
    EXPECT_EQ(a.say(set("/k", std::string("v\0w", 3))), "");
    EXPECT_EQ(b.say(get("/k")), text(std::string("v\0w", 3)));
    EXPECT_EQ(b.say(get("/none")), text(""));
    EXPECT_EQ(b.say(ask(Operation::append, text("/k") + text("!"))), "");
    EXPECT_EQ(b.say(ask(Operation::append, text("/new") + text("!"))), "");
    EXPECT_EQ(a.say(ask_keys(Operation::multi_get, {"/k", "/none", "/new"})),
              text(std::string("v\0w!", 4)) + text("") + text("!"));
    EXPECT_EQ(a.say(ask(Operation::multi_set,
                        number<std::uint64_t>(2) + text("/x") + text("1") + text("/y") + text("2"))),
              "");
    EXPECT_EQ(a.say(ask(Operation::get_num_keys)), number<std::int64_t>(4));
    EXPECT_EQ(a.say(ask(Operation::list_keys)),
              number<std::int64_t>(4) + text("/k") + text("/new") + text("/x") + text("/y"));
    EXPECT_EQ(a.say(ask(Operation::delete_key, text("/x"))), number<std::int64_t>(1));
    EXPECT_EQ(a.say(ask(Operation::delete_key, text("/x"))), number<std::int64_t>(0));
    EXPECT_EQ(a.say(ask_keys(Operation::check, {"/k", "/y"})), std::string(1, kReady));
    EXPECT_EQ(a.say(ask_keys(Operation::check, {"/k", "/x"})), std::string(1, kNotReady));
}

// What tells of keys: only for names that hold the secret; what PyTorch says besides is taken.
TEST_F(TorchSession, WhoDoesNotKnowTheSecretIsToldNothing) {
    const std::string theirs = "/x", ours = "/secret/secret//cuda//0";
    keys.set(ours, "id");
    keys.set(theirs, "of a stranger");
    const auto refused = [&](const std::string& request) {
        Session session(
            keys, [] {}, "secret");
        session.feed(validate() + request);
        return !error_of([&] { session.work(); }).empty();
    };
    const std::string one = number<std::int64_t>(1);
    for (const std::string& key : {theirs, ours}) {
        const bool foreign = key == theirs;
        EXPECT_EQ(refused(get(key)), foreign);
        EXPECT_EQ(refused(ask_keys(Operation::multi_get, {ours, key})), foreign);
        EXPECT_EQ(refused(ask_keys(Operation::wait, {ours, key})), foreign);
        EXPECT_EQ(refused(ask(Operation::barrier, text(key + "/b") + one)), foreign);
        EXPECT_EQ(refused(ask(Operation::compare_set, text(key) + text("secret") + text("secret"))), foreign);
        EXPECT_EQ(refused(ask(Operation::queue_pop, text(key))), foreign);
        EXPECT_EQ(refused(ask(Operation::queue_len, text(key))), foreign);
        EXPECT_FALSE(refused(ask_keys(Operation::check, {key})));
        EXPECT_FALSE(refused(set(key, "value")));
    }
    EXPECT_TRUE(refused(ask(Operation::list_keys)));
    EXPECT_FALSE(refused(ask(Operation::add, text("init/") + one)));
}

TEST_F(TorchSession, CompareSet) {
    const auto compare_set = [&](std::string_view expected, std::string_view desired) {
        return a.say(ask(Operation::compare_set, text("/c") + text(expected) + text(desired)));
    };
    EXPECT_EQ(compare_set("old", "new"), text("old"));  // absent: PyTorch says what was expected
    EXPECT_EQ(keys.find("/c"), nullptr);
    EXPECT_EQ(compare_set("", "first"), text("first"));
    EXPECT_EQ(compare_set("other", "second"), text("first"));
    EXPECT_EQ(compare_set("first", "second"), text("second"));
    EXPECT_EQ(*keys.find("/c"), "second");
}

TEST_F(TorchSession, AddCountsInText) {
    const auto add = [&](std::int64_t amount) {
        return a.say(ask(Operation::add, text("/n") + number(amount)));
    };
    EXPECT_EQ(add(5), number<std::int64_t>(5));
    EXPECT_EQ(add(-12), number<std::int64_t>(-7));
    EXPECT_EQ(a.say(get("/n")), text("-7"));
    EXPECT_THAT(error_of([&] { add(std::numeric_limits<std::int64_t>::min()); }), HasSubstr("64 bits"));
    b.say(set("/n", "7 apples"));
    EXPECT_THAT(error_of([&] { b.say(ask(Operation::add, text("/n") + number<std::int64_t>(1))); }),
                HasSubstr("'/n' in the torch store is no number"));
}

TEST_F(TorchSession, WaitEndsWithTheLastOfItsKeys) {
    a.say(set("/there", ""));
    EXPECT_EQ(a.say(ask_keys(Operation::wait, {"/there"})), kStop);
    EXPECT_EQ(a.say(ask_keys(Operation::wait, {"/there", "/x", "/y", "/y"})), "");
    EXPECT_THAT(keys.awaited(), ElementsAre("/x", "/y"));
    b.say(set("/y", "2"));
    EXPECT_EQ(a.woken, 0);
    EXPECT_EQ(a.hear(), "");
    b.say(ask(Operation::add, text("/x") + number<std::int64_t>(1)));
    EXPECT_EQ(a.woken, 1);
    EXPECT_EQ(a.hear(), kStop);
    EXPECT_THAT(keys.awaited(), ElementsAre());
    b.say(set("/x", "3"));
    EXPECT_EQ(a.hear(), "");
}

TEST_F(TorchSession, WhatSetsAKeyEndsItsWait) {
    const auto ends = [&](const std::string& request) {
        a.say(ask_keys(Operation::wait, {"/w"}));
        b.say(request);
        const bool ended = a.hear() == kStop;
        b.say(ask(Operation::delete_key, text("/w")));
        return ended;
    };
    EXPECT_TRUE(ends(set("/w", "")));
    EXPECT_TRUE(ends(ask(Operation::append, text("/w") + text("v"))));
    EXPECT_TRUE(ends(ask(Operation::compare_set, text("/w") + text("") + text("v"))));
    EXPECT_TRUE(ends(ask(Operation::multi_set, number<std::uint64_t>(1) + text("/w") + text("v"))));
    EXPECT_FALSE(ends(ask(Operation::compare_set, text("/w") + text("not this") + text("v"))));
}

TEST_F(TorchSession, CanceledWaits) {
    a.say(ask_keys(Operation::wait, {"/x", "/y"}));
    EXPECT_EQ(a.say(ask(Operation::cancel_wait)), kCanceled);
    EXPECT_THAT(keys.awaited(), ElementsAre());
    b.say(set("/x", "") + set("/y", ""));
    EXPECT_EQ(a.hear(), "");
    // The key came while the client gave up: both answers, in their order.
    a.say(ask_keys(Operation::wait, {"/z"}));
    b.say(set("/z", ""));
    EXPECT_EQ(a.say(ask(Operation::cancel_wait)), kStop + kCanceled);
}

TEST_F(TorchSession, WaitsAndGoesInPieces) {
    const std::string all = ask_keys(Operation::wait, {"/p"}) + ask(Operation::cancel_wait) + set("/q", "v") +
                            get("/q") + ask(Operation::ping, number<std::uint32_t>(7));
    std::string heard;
    for (const char byte : all) heard += a.say(std::string(1, byte));
    EXPECT_EQ(heard, kCanceled + text("v") + number<std::uint32_t>(7));
    EXPECT_FALSE(a.session().mid_request());
    a.say(set("/q", "v").substr(0, 12));
    EXPECT_TRUE(a.session().mid_request());
}

TEST_F(TorchSession, Queues) {
    const auto push = [](std::string_view value) {
        return ask(Operation::queue_push, text("/q") + text(value));
    };
    const std::string pop = ask(Operation::queue_pop, text("/q"));
    EXPECT_EQ(a.say(pop), number<std::int64_t>(0));
    a.say(push("1") + push("2"));
    EXPECT_EQ(a.say(ask(Operation::queue_len, text("/q"))), number<std::int64_t>(2));
    EXPECT_EQ(b.say(ask_keys(Operation::wait, {"/q"})), kStop);
    EXPECT_EQ(b.say(pop), number<std::int64_t>(2) + text("1"));
    EXPECT_EQ(b.say(pop), number<std::int64_t>(1) + text("2"));
    EXPECT_EQ(a.say(ask(Operation::get_num_keys)), number<std::int64_t>(0));
    // One element is for one of those who wait.
    Client c(keys);
    b.say(ask_keys(Operation::wait, {"/q"}));
    c.say(ask_keys(Operation::wait, {"/q"}));
    a.say(push("3"));
    EXPECT_EQ(b.hear() + c.hear(), kStop);
    EXPECT_EQ(b.say(pop), number<std::int64_t>(1) + text("3"));
    a.say(push("4"));
    EXPECT_EQ(c.hear(), kStop);
}

TEST_F(TorchSession, Barrier) {
    const std::string barrier = ask(Operation::barrier, text("/b") + number<std::int64_t>(3));
    Client c(keys);
    EXPECT_EQ(a.say(barrier), "");
    EXPECT_EQ(b.say(barrier), "");
    EXPECT_THAT(keys.awaited(), ElementsAre("/b"));
    EXPECT_EQ(c.say(barrier), kStop);
    EXPECT_EQ(a.hear() + b.hear(), kStop + kStop);
}

TEST_F(TorchSession, WhoLeavesWaitsNoLonger) {
    {
        Client gone(keys);
        gone.say(ask_keys(Operation::wait, {"/x", "/y"}));
        Client at_barrier(keys);
        at_barrier.say(ask(Operation::barrier, text("/b") + number<std::int64_t>(2)));
    }
    EXPECT_THAT(keys.awaited(), ElementsAre());
    a.say(set("/x", ""));
}

TEST_F(TorchSession, WhatEndsAConnection) {
    const auto refusal = [&](const std::string& bytes) {
        Client client(keys);
        return error_of([&] { client.say(bytes); });
    };
    Session stranger(keys, [] {});
    stranger.feed(get("/k"));
    EXPECT_THAT(error_of([&] { stranger.work(); }), HasSubstr("magic number"));
    EXPECT_THAT(refusal(validate(1)), HasSubstr("another magic number"));
    EXPECT_THAT(refusal("GET / HTTP/1.1\r\n"), HasSubstr("kind 71"));
    EXPECT_THAT(refusal(ask(Operation::get, number<std::uint64_t>(kMaxKey + 1))), HasSubstr("8193 bytes"));
    EXPECT_THAT(refusal(ask(Operation::set, text("/k") + number(std::numeric_limits<std::uint64_t>::max()))),
                HasSubstr("18446744073709551615 bytes, of 8388608"));
    EXPECT_THAT(refusal(ask(Operation::wait, number<std::uint64_t>(kMaxKeys + 1))), HasSubstr("131073 keys"));
    EXPECT_THAT(refusal(ask_keys(Operation::wait, {"/never"}) + get("/k")), HasSubstr("while it waits"));
    EXPECT_EQ(keys.size(), 0U);
}

TEST_F(TorchSession, MemoryIsLimitedAndGivenBack) {
    const std::size_t before = keys.budget().used();
    {
        Client client(keys);
        client.say(set("/k", std::string(400'000, 'v')));
        client.say(set("/k", std::string(300'000, 'w')));  // in its own place
        EXPECT_THAT(error_of([&] { client.say(set("/l", std::string(700'000, 'v'))); }),
                    HasSubstr("is full"));
    }
    EXPECT_LT(keys.budget().used(), before + 301'000);
    {
        // An answer that is larger than all memory, and announced texts that are not there.
        Client client(keys);
        const std::vector<std::string> often(1000, "/k");
        EXPECT_THAT(error_of([&] { client.say(ask_keys(Operation::multi_get, often)); }),
                    HasSubstr("is full"));
        Client other(keys);
        other.say(ask(Operation::set, text("/m") + number<std::uint64_t>(kMaxValue)));
        EXPECT_LT(keys.budget().used(), kRoom);
    }
    {
        Client client(keys);
        std::vector<std::string> many;
        for (int i = 0; i < 10'000; ++i) many.push_back("/many/" + std::to_string(i));
        EXPECT_THAT(error_of([&] { client.say(ask_keys(Operation::wait, many)); }), HasSubstr("is full"));
    }
    a.say(ask(Operation::delete_key, text("/k")));
    a.say(ask(Operation::queue_push, text("/q") + text(std::string(100'000, 'q'))));
    a.say(ask(Operation::queue_pop, text("/q")));
    EXPECT_EQ(keys.budget().used(), before);
}

}  // namespace
}  // namespace tandem::engine::torch_store
