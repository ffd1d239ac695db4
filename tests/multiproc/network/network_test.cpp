// Two hosts with two ranks each, as torchrun or Slurm start them: the contract over the network, the choice
// of the interface, and a host that is cut off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "common/deadline.h"
#include "tests/multiproc/network/hosts.h"

namespace tandem::comm {
namespace {

using test::Hosts;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

int exit_code_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Network : public ::testing::Test {
  protected:
    void SetUp() override {
        folder_ = ::testing::TempDir() + "network_" + std::to_string(::getpid());
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directory(folder_);
        const std::string why = test::why_no_hosts();
        ASSERT_EQ(why, "");
        hosts_ = std::make_unique<Hosts>();
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    // Ranks 0 and 1 on host 0, ranks 2 and 3 on host 1.
    std::vector<pid_t> start(const std::string& body, const std::vector<std::string>& more = {}) {
        std::vector<pid_t> pids;
        for (int rank = 0; rank < 4; ++rank) pids.push_back(start_rank(rank, body, more));
        return pids;
    }
    pid_t start_rank(int rank, const std::string& body, const std::vector<std::string>& more) {
        std::vector<std::string> environment = {
            "RANK=" + std::to_string(rank),     "WORLD_SIZE=4",      "LOCAL_RANK=" + std::to_string(rank % 2),
            "MASTER_ADDR=" + Hosts::address(0), "MASTER_PORT=29411", "TANDEM_LOG=warn",
            "TANDEM_TEST_FOLDER=" + folder_};
        environment.insert(environment.end(), more.begin(), more.end());
        return hosts_->start(rank / 2, {"/proc/self/exe", "--rank-body", body}, environment);
    }
    std::string told(int rank) const {
        std::stringstream text;
        text << std::ifstream(folder_ + "/rank" + std::to_string(rank)).rdbuf();
        return text.str();
    }
    void wait_for(const std::string& part, int rank) const {
        const auto deadline = Deadline::after_ms(20'000);
        while (told(rank).find(part) == std::string::npos && !deadline.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        ASSERT_THAT(told(rank), HasSubstr(part));
    }

    std::string folder_;
    std::unique_ptr<Hosts> hosts_;
};

class Contract : public Network, public ::testing::WithParamInterface<const char*> {};

TEST_P(Contract, HoldsBetweenHosts) {
    for (const pid_t pid : start(GetParam())) EXPECT_EQ(exit_code_of(pid), 0);
}

// Each operation once; the rest of the contract runs in threads (tests/contract/comm).
INSTANTIATE_TEST_SUITE_P(Network, Contract,
                         ::testing::Values("all_gather_sizes", "reduce_scatter_items", "all_reduce_ops",
                                           "all_to_all_uneven", "broadcast_roots", "p2p_everybody",
                                           "mesh_of_groups", "streams_interleave", "calls_disagree",
                                           "deadline_names_the_late"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Network, GlooAndTheRouteToTheMasterAreChosen) {
    for (const pid_t pid : start("says_where_it_listens", {"TANDEM_LOG=info"}))
        EXPECT_EQ(exit_code_of(pid), 0);
    for (int rank = 0; rank < 4; ++rank) {
        EXPECT_THAT(told(rank), HasSubstr("listens on " + Hosts::address(rank / 2) + " (interface " +
                                          Hosts::interface(rank / 2) + ", from the route to 10.77.0.1)"));
    }
}

TEST_F(Network, TheUserNamesTheInterface) {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 4; ++rank) {
        pids.push_back(start_rank(rank, "says_where_it_listens",
                                  {"TANDEM_LOG=info", "TANDEM_IFACE=" + Hosts::interface(rank / 2)}));
    }
    for (const pid_t pid : pids) EXPECT_EQ(exit_code_of(pid), 0);
    EXPECT_THAT(told(3), HasSubstr("(interface veth1, from TANDEM_IFACE)"));
}

TEST_F(Network, AWrongInterfaceIsRefused) {
    for (const pid_t pid : start("barrier_holds", {"TANDEM_IFACE=eth9"})) EXPECT_EQ(exit_code_of(pid), 2);
    EXPECT_THAT(told(2), HasSubstr("TANDEM_IFACE: no network interface 'eth9' that is up and has an address; "
                                   "there are: "));
    EXPECT_THAT(told(2), HasSubstr("veth1 (10.77.0.2)"));
}

TEST_F(Network, TheLoopbackInterfaceIsRefused) {
    for (const pid_t pid : start("barrier_holds", {"GLOO_SOCKET_IFNAME=lo"})) EXPECT_EQ(exit_code_of(pid), 2);
    EXPECT_THAT(told(1),
                HasSubstr("rank 1 would listen on 127.0.0.1 (interface lo, from GLOO_SOCKET_IFNAME)"));
}

TEST_F(Network, IpcBetweenHostsIsRefused) {
    for (const pid_t pid : start("barrier_holds", {"TANDEM_COMM=ipc"})) EXPECT_EQ(exit_code_of(pid), 2);
    EXPECT_THAT(told(3), HasSubstr("'ipc' joins ranks of one host, and there are 2"));
}

// In the middle of collectives the other host is gone. Each side ends within its deadline of 2 s, and names
// only ranks of the other.
TEST_F(Network, AHostIsCutOffInTheMiddle) {
    const auto pids = start("reduces_for_ever");
    for (int rank = 0; rank < 4; ++rank) wait_for("running\n", rank);
    hosts_->cut();
    const auto start = std::chrono::steady_clock::now();
    for (const pid_t pid : pids) EXPECT_EQ(exit_code_of(pid), 1);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));  // TCP's own: minutes
    for (const int rank : {0, 1}) {
        EXPECT_THAT(told(rank), HasSubstr("not there after 2 s"));
        EXPECT_THAT(told(rank), AnyOf(HasSubstr("with rank 2"), HasSubstr("with rank 3")));
        EXPECT_THAT(told(rank), Not(AnyOf(HasSubstr("rank 0: not"), HasSubstr("rank 1: not"))));
    }
    for (const int rank : {2, 3}) {
        EXPECT_THAT(told(rank), HasSubstr("not there after 2 s"));
        EXPECT_THAT(told(rank), AnyOf(HasSubstr("with rank 0"), HasSubstr("with rank 1")));
        EXPECT_THAT(told(rank), Not(AnyOf(HasSubstr("rank 2: not"), HasSubstr("rank 3: not"))));
    }
}

// The host is gone before the next collective begins: all of its ranks are named.
TEST_F(Network, AllRanksOfTheLostHostAreNamed) {
    const auto pids = start("reduces_after_the_cut");
    for (int rank = 0; rank < 4; ++rank) wait_for("running\n", rank);
    hosts_->cut();
    std::ofstream(folder_ + "/cut") << "now";
    for (const pid_t pid : pids) EXPECT_EQ(exit_code_of(pid), 1);
    EXPECT_THAT(told(0) + told(1),
                HasSubstr("all_reduce on 'world' with rank 2, rank 3: not there after 2 s"));
    EXPECT_THAT(told(2) + told(3),
                HasSubstr("all_reduce on 'world' with rank 0, rank 1: not there after 2 s"));
}

// The whole loop, as torchrun or Slurm start it: the engine is on rank 0's host, the weights reach it by
// gather. The run's folder is on a file system that the hosts share.
class Training : public Network {
  protected:
    std::vector<pid_t> train(const std::string& mode, const std::vector<std::string>& mesh = {}) {
        std::vector<pid_t> pids;
        for (int rank = 0; rank < 4; ++rank) {
            std::vector<std::string> command = {TANDEM_BIN_DIR "/tandem-train",
                                                TANDEM_SOURCE_DIR "/examples/quickstart/quickstart.toml"};
            std::vector<std::string> values{"output=" + folder_, "name=tiny",         "sft.steps=5",
                                            "grpo.steps=5",      "grpo.prompts=8",    "held_out=64",
                                            "evaluate_every=0",  "run.deadline_s=60", "sync.mode=" + mode};
            values.insert(values.end(), mesh.begin(), mesh.end());
            for (const std::string& value : values) command.insert(command.end(), {"--set", value});
            const std::string log = folder_ + "/rank" + std::to_string(rank);
            std::string line = "exec";
            for (const auto& word : command) line += " '" + word + "'";
            pids.push_back(hosts_->start(
                rank / 2, {"/bin/sh", "-c", line + " >" + log + " 2>&1"},
                {"RANK=" + std::to_string(rank), "WORLD_SIZE=4", "LOCAL_RANK=" + std::to_string(rank % 2),
                 "MASTER_ADDR=" + Hosts::address(0), "MASTER_PORT=29412"}));
        }
        return pids;
    }
};

TEST_F(Training, RunsOnTwoHosts) {
    // tp and pp inside a host, and across.
    for (const std::vector<std::string>& mesh :
         std::vector<std::vector<std::string>>{{},
                                               {"mesh.dp=2", "mesh.cp=1", "mesh.tp=2"},
                                               {"mesh.dp=1", "mesh.cp=1", "mesh.tp=4"},
                                               {"mesh.dp=2", "mesh.cp=1", "mesh.pp=2"},
                                               {"mesh.dp=1", "mesh.cp=1", "mesh.pp=4", "model.layers=4"}}) {
        for (const pid_t pid : train("gather", mesh)) EXPECT_EQ(exit_code_of(pid), 0);
        std::stringstream summary;
        summary << std::ifstream(folder_ + "/tiny/summary.json").rdbuf();
        EXPECT_THAT(summary.str(), HasSubstr("\"weights_match\": true")) << told(0) << told(3);
        EXPECT_THAT(summary.str(), HasSubstr("\"world_size\": 4"));
        std::filesystem::remove_all(folder_ + "/tiny");
    }
}

TEST_F(Training, ModesThatNeedOneHostAreRefused) {
    for (const char* mode : {"direct", "alias", "delta"}) {
        for (const pid_t pid : train(mode)) EXPECT_EQ(exit_code_of(pid), 1) << mode;
        for (const int rank : {0, 3}) EXPECT_THAT(told(rank), HasSubstr("use mode gather")) << mode;
        std::filesystem::remove_all(folder_ + "/tiny");
    }
}

}  // namespace
}  // namespace tandem::comm
