// Weights over TCP to an engine of another host: chosen without being asked for, in every mode that can, by key; and a
// link that is taken away in the middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "common/deadline.h"
#include "tests/multiproc/network/hosts.h"
#include "tests/unit/engine_adapter/embedded/tiny_model.h"

namespace tandem::engine {
namespace {

using test::Hosts;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> kKey{"TANDEM_API_KEY=between hosts", "TANDEM_LOG=warn"};

class PushBetweenHosts : public testing::Test {
  protected:
    void SetUp() override {
        folder_ = testing::TempDir() + "push_" + std::to_string(::getpid());
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_ + "/model");
        const std::string why = test::why_no_hosts();
        ASSERT_EQ(why, "");
        hosts_ = std::make_unique<Hosts>();
    }
    void TearDown() override {
        for (const pid_t pid : running_) {
            ::kill(pid, SIGKILL);
            ::waitpid(pid, nullptr, 0);
        }
        std::filesystem::remove_all(folder_);
    }
    std::string file(const std::string& name) const { return folder_ + "/" + name; }
    std::string text(const std::string& name) const {
        std::stringstream all;
        all << std::ifstream(file(name)).rdbuf();
        return all.str();
    }
    // With standard input that never ends, output to a file.
    pid_t start(int host, const std::vector<std::string>& command, const std::string& out,
                const std::vector<std::string>& environment = kKey) {
        const std::string fifo = file("stdin");
        ::mkfifo(fifo.c_str(), 0600);
        std::string line = "exec";
        for (const std::string& word : command) line += " '" + word + "'";
        return hosts_->start(host, {"/bin/sh", "-c", line + " 0<>'" + fifo + "' >'" + file(out) + "' 2>&1"},
                             environment);
    }
    void serve(const std::vector<std::string>& command, const std::string& out, const std::string& until) {
        running_.push_back(start(1, command, out));
        wait_for(out, until);
    }
    int run(const std::vector<std::string>& command, const std::string& out,
            const std::vector<std::string>& environment = kKey) {
        int status = 0;
        ::waitpid(start(0, command, out, environment), &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    void wait_for(const std::string& name, const std::string& part, std::size_t after = 0) const {
        const auto deadline = Deadline::after_ms(60'000);
        while (text(name).find(part, after) == std::string::npos && !deadline.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_THAT(text(name).substr(std::min(after, text(name).size())), HasSubstr(part));
    }

    std::string folder_;
    std::unique_ptr<Hosts> hosts_;
    std::vector<pid_t> running_;
};

std::vector<std::string> bench(const std::string& subcommand, const std::string& mode) {
    return {TANDEM_BIN_DIR "/tandem-sync",
            subcommand,
            "--shapes",
            "tiny",
            "--mesh",
            "2,1",
            "--mode",
            mode,
            "--transport",
            "tcp",
            "--source-dtype",
            "float32"};
}

class Mode : public PushBetweenHosts, public testing::WithParamInterface<const char*> {};

// The bench exits 0 only when each engine rank holds what the trainer holds.
TEST_P(Mode, BringsWholeVersionsToBothRanksOfAnEngine) {
    auto push = bench("bench", GetParam());
    for (int rank = 0; rank < 2; ++rank) {
        auto engine = bench("bench-engine", GetParam());
        const std::string address = Hosts::address(1) + ":" + std::to_string(5100 + rank);
        for (const std::string& word :
             {std::string("--engine-tp"), std::string("2"), std::string("--engine-rank"),
              std::to_string(rank), std::string("--data-listen"), address})
            engine.push_back(word);
        serve(engine, "engine" + std::to_string(rank), "tcp://" + address);
        push.insert(push.end(), {"--engine", "tcp://" + address + "?connections=3"});
    }
    push.insert(push.end(), {"--engine-tp", "2", "--iterations", "3", "--changed", "0.1", "--json"});
    ASSERT_EQ(run(push, "bench"), 0) << text("bench") << text("engine0");
    EXPECT_THAT(text("bench"), AllOf(HasSubstr("\"verified\": true"), HasSubstr("\"transport\": \"tcp\"")));
}

INSTANTIATE_TEST_SUITE_P(Network, Mode, testing::Values("gather", "direct", "delta"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(PushBetweenHosts, AliasIsRefusedByName) {
    EXPECT_EQ(run(bench("bench", "alias"), "bench"), 2);
    EXPECT_THAT(text("bench"), AllOf(HasSubstr("alias lets the engine read the trainer's memory in place"),
                                     HasSubstr("use gather, direct or delta")));
}

TEST_F(PushBetweenHosts, AnEngineOfAnotherHostIsReachedOverTcpByItsUrl) {
    write_tiny_model(file("model"), tiny_config(), 3);
    const std::string address = Hosts::address(1) + ":31100";
    serve({TANDEM_BIN_DIR "/tandem-engine", "serve", "--model", file("model"), "--listen", address,
           "--load-format", "dummy", "--threads", "1", "--admin-api-key", "between hosts"},
          "engine", "listening on");
    const std::vector<std::string> push{
        TANDEM_BIN_DIR "/tandem-sync", "push",       "--model", file("model"), "--to",
        "tandem://" + address,         "--deadline", "20"};
    EXPECT_EQ(run(push, "wrong", {"TANDEM_API_KEY=another"}), 1);
    EXPECT_THAT(text("wrong"), HasSubstr("asks for another key"));
    ASSERT_EQ(run(push, "push"), 0) << text("push") << text("engine");
}

TEST_F(PushBetweenHosts, AnEngineOfAnotherHostWithoutADataPlaneSaysWhatToDo) {
    write_tiny_model(file("model"), tiny_config(), 3);
    const std::string address = Hosts::address(1) + ":31101";
    serve({TANDEM_BIN_DIR "/tandem-engine", "serve", "--model", file("model"), "--listen", address,
           "--threads", "1", "--admin-api-key", "between hosts", "--data-listen", "off"},
          "engine", "listening on");
    EXPECT_EQ(
        run({TANDEM_BIN_DIR "/tandem-sync", "push", "--model", file("model"), "--to", "tandem://" + address},
            "push"),
        1);
    EXPECT_THAT(text("push"), HasSubstr("start tandem-engine with --data-listen"));
}

// Packets are lost, and nobody is told. Each step has 2 s.
TEST_F(PushBetweenHosts, ACutLinkEndsThePushByNameAndTheNextOneSucceeds) {
    const std::string address = Hosts::address(1) + ":5200";
    const auto body = [&](const std::string& name) {
        return std::vector<std::string>{"/proc/self/exe", "--push-body", name, address, file(name)};
    };
    running_.push_back(hosts_->start(1, body("engine"), kKey));
    wait_for("engine", "listening");
    running_.push_back(hosts_->start(0, body("trainer"), kKey));
    wait_for("trainer", "pushed 3\n");
    hosts_->cut();
    const std::size_t before = text("trainer").size();
    const auto cut = std::chrono::steady_clock::now();
    wait_for("trainer", "failed: ", before);
    EXPECT_LT(std::chrono::steady_clock::now() - cut, std::chrono::seconds(6));
    const std::string why = text("trainer");
    EXPECT_THAT(why.substr(why.find("failed: ", before)), HasSubstr("with engine tcp://" + address));
    hosts_->mend();
    wait_for("trainer", "pushed ", why.size());
}

}  // namespace
}  // namespace tandem::engine
