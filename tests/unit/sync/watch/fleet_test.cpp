// Each server of a watch comes to the newest version by itself: slow, away, restarted, refusing.
#include "sync/watch/fleet.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "common/error.h"
#include "common/model/safetensors.h"

namespace tandem::sync {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What a server of the test does; its incarnation and what it holds.
struct Server {
    int start = 1;
    bool says_who = true;
    bool answers = true;
    std::string refuses;                   // every push, with this
    bool slow = false;                     // a push ends when this does
    int pushes = 0;                        // begun
    std::vector<std::int64_t> given = {};  // versions, in their order
    std::vector<bool> as_restarted = {};
};

class FleetTest : public testing::Test {
  protected:
    FleetTest() {
        std::string name = (fs::temp_directory_path() / "fleet.XXXXXX").string();
        folder_ = ::mkdtemp(name.data());
        Tensor tensor = Tensor::zeros({2}, DType::float32, "test");
        model::write_safetensors((folder_ / "model.safetensors").string(), {{"w", tensor}});
    }
    ~FleetTest() override {
        fleet_.reset();
        fs::remove_all(folder_);
    }

    Fleet& start(const std::vector<std::string>& names) {
        for (const std::string& name : names) servers_[name];
        FleetPorts ports;
        ports.push = [this](const std::string& url, const Version& version, bool restarted) {
            ServerOutcome outcome;
            std::unique_lock lock(mutex_);
            Server& server = servers_.at(url);
            ++server.pushes;
            changed_.notify_all();
            changed_.wait(lock, [&] { return !server.slow; });
            outcome.error = server.refuses;
            outcome.whole = server.refuses.empty();
            outcome.version = version.number;
            if (outcome.whole) server.given.push_back(version.number);
            if (outcome.whole) server.as_restarted.push_back(restarted);
            return outcome;
        };
        ports.who = [this](const std::string& url) -> std::string {
            const std::lock_guard lock(mutex_);
            const Server& server = servers_.at(url);
            if (!server.answers) throw TransportError(url, "connect", "refused");
            return server.says_who ? std::to_string(server.start) : "";
        };
        FleetReports reports;
        reports.brought = [this](const Version& version, const std::vector<ServerOutcome>& outcomes, double,
                                 bool again) {
            std::size_t whole = 0;
            for (const ServerOutcome& outcome : outcomes) whole += outcome.whole ? 1 : 0;
            lines_.push_back(
                fmt::format("{}{} {}/{}", again ? "again " : "", version.number, whole, outcomes.size()));
        };
        reports.trouble = [this](const std::string& url, const std::string& text) {
            troubles_.push_back(url + ": " + text);
        };
        fleet_ = std::make_unique<Fleet>(names, ports, reports, FleetTimes{5ms, 10ms, 40ms});
        return *fleet_;
    }
    Version version(std::int64_t number) {
        return {"step_" + std::to_string(number), folder_.string(), number,
                std::make_shared<DirectoryWeights>(folder_.string())};
    }
    void change(const std::string& name, const std::function<void(Server&)>& how) {
        const std::lock_guard lock(mutex_);
        how(servers_.at(name));
        changed_.notify_all();
    }
    std::vector<std::int64_t> given(const std::string& name) {
        const std::lock_guard lock(mutex_);
        return servers_.at(name).given;
    }
    int pushes(const std::string& name) {
        const std::lock_guard lock(mutex_);
        return servers_.at(name).pushes;
    }
    static bool soon(const std::function<bool()>& is) {
        for (int i = 0; i < 2000; ++i) {
            if (is()) return true;
            std::this_thread::sleep_for(5ms);
        }
        return false;
    }

    fs::path folder_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, Server> servers_;
    std::vector<std::string> lines_, troubles_;  // read when the fleet has stopped, or all were tried
    std::unique_ptr<Fleet> fleet_;
};

TEST_F(FleetTest, EveryVersionGoesToAllServersInOneLine) {
    Fleet& fleet = start({"a", "b"});
    for (const std::int64_t number : {1, 2, 3}) {
        fleet.bring(version(number));
        ASSERT_TRUE(soon([&] { return fleet.tried(); }));
        EXPECT_TRUE(fleet.all_have_newest());
    }
    fleet.stop();
    EXPECT_THAT(lines_, ElementsAre("1 2/2", "2 2/2", "3 2/2"));
    EXPECT_THAT(given("a"), ElementsAre(1, 2, 3));
    EXPECT_THAT(troubles_, IsEmpty());
    EXPECT_EQ(fleet.holdings()[1].name, "step_3");
    EXPECT_EQ(fleet.holdings()[1].version, 3);
}

TEST_F(FleetTest, ASlowServerHoldsUpNobodyAndSkipsWhatIsOld) {
    Fleet& fleet = start({"fast", "slow"});
    change("slow", [](Server& server) { server.slow = true; });
    for (std::int64_t number = 1; number <= 5; ++number) {
        fleet.bring(version(number));
        ASSERT_TRUE(soon([&] { return given("fast").size() == static_cast<std::size_t>(number); }));
        ASSERT_TRUE(soon([&] { return pushes("slow") == 1; }));
    }
    change("slow", [](Server& server) { server.slow = false; });
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
    fleet.stop();
    EXPECT_THAT(given("fast"), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_THAT(given("slow"), ElementsAre(1, 5));
    EXPECT_THAT(lines_, ElementsAre("2 1/1", "3 1/1", "4 1/1", "1 2/2", "5 2/2"));
}

TEST_F(FleetTest, OneThatIsAwayIsBroughtUpToDateWhenItAnswers) {
    Fleet& fleet = start({"a", "b"});
    change("b", [](Server& server) { server.answers = false; });
    fleet.bring(version(7));
    ASSERT_TRUE(soon([&] { return fleet.tried(); }));
    EXPECT_FALSE(fleet.all_have_newest());
    EXPECT_THAT(fleet.holdings()[1].trouble, HasSubstr("refused"));
    change("b", [](Server& server) { server.answers = true; });
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
    fleet.stop();
    EXPECT_THAT(lines_, ElementsAre("7 1/2", "again 7 1/1"));
    EXPECT_THAT(troubles_, ElementsAre(HasSubstr("b: ")));
    EXPECT_EQ(fleet.holdings()[1].trouble, "");
}

TEST_F(FleetTest, ARestartedServerIsKnownByItsIncarnation) {
    Fleet& fleet = start({"a", "b"});
    fleet.bring(version(7));
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
    for (int start = 2; start <= 4; ++start) {
        change("b", [&](Server& server) { server.start = start; });
        ASSERT_TRUE(soon([&] { return given("b").size() == static_cast<std::size_t>(start); }));
    }
    std::this_thread::sleep_for(50ms);
    fleet.stop();
    EXPECT_THAT(given("a"), ElementsAre(7));
    EXPECT_THAT(given("b"), ElementsAre(7, 7, 7, 7));
    EXPECT_THAT(servers_.at("b").as_restarted, ElementsAre(false, true, true, true));
    EXPECT_THAT(troubles_, Contains("b: it was restarted"));
}

// Without a name of its own it is given its version again whenever it was away.
TEST_F(FleetTest, OneThatDoesNotSayWhoItIsMayBeAnotherOneAfterItWasAway) {
    Fleet& fleet = start({"a"});
    change("a", [](Server& server) { server.says_who = false; });
    fleet.bring(version(7));
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(given("a").size(), 1u);
    change("a", [](Server& server) { server.answers = false; });
    ASSERT_TRUE(soon([&] { return !fleet.holdings()[0].trouble.empty(); }));
    change("a", [](Server& server) { server.answers = true; });
    ASSERT_TRUE(soon([&] { return given("a").size() == 2; }));
}

TEST_F(FleetTest, WhatFailsIsTriedAgainAndToldOnce) {
    Fleet& fleet = start({"a", "b"});
    change("a", [](Server& server) { server.refuses = "no room"; });
    fleet.bring(version(7));
    ASSERT_TRUE(soon([&] { return fleet.tried(); }));
    std::this_thread::sleep_for(100ms);
    change("a", [](Server& server) { server.refuses.clear(); });
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
    fleet.stop();
    EXPECT_THAT(troubles_, ElementsAre("a: no room"));
    EXPECT_THAT(lines_, ElementsAre("7 1/2", "again 7 1/1"));
}

// Its files changed while they were read: nobody is given the rest.
TEST_F(FleetTest, ASpoiledVersionIsGivenToNobodyAnyMore) {
    Fleet& fleet = start({"a"});
    change("a", [](Server& server) { server.refuses = "was written to"; });
    const Version spoiled = version(7);
    {
        std::fstream file(folder_ / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-4, std::ios::end);
        file << "abcd";
    }
    fleet.bring(spoiled);
    ASSERT_TRUE(soon([&] { return fleet.tried(); }));
    EXPECT_EQ(fleet.take_spoiled()->number, 7);
    EXPECT_FALSE(fleet.take_spoiled());
    change("a", [](Server& server) { server.refuses.clear(); });
    std::this_thread::sleep_for(100ms);
    EXPECT_THAT(given("a"), IsEmpty());
    fleet.bring(version(7));
    ASSERT_TRUE(soon([&] { return fleet.all_have_newest(); }));
}

}  // namespace
}  // namespace tandem::sync
