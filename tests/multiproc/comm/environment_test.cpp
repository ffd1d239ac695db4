// Ranks that another launcher started (torchrun, Slurm): they find each other through MASTER_ADDR and
// MASTER_PORT.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "common/store/store.h"
#include "tests/multiproc/comm/bodies.h"
#include "tests/support/free_port.h"
#include "tests/support/ipv6.h"

namespace tandem::comm {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

pid_t start_rank(int rank, const Variables& variables, const char* body) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    for (const auto& [key, value] : variables) ::setenv(key.c_str(), value.c_str(), 1);
    ::execl("/proc/self/exe", "rank", "--rank-body", body, static_cast<char*>(nullptr));
    ::_exit(127);
}

int exit_code_of(pid_t pid) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void run_ranks(int size, Variables variables) {
    variables.emplace_back("WORLD_SIZE", std::to_string(size));
    std::vector<pid_t> pids;
    for (int rank = size - 1; rank >= 0; --rank)
        pids.push_back(start_rank(rank, variables, "all_gather_sizes"));
    for (const pid_t pid : pids) EXPECT_EQ(exit_code_of(pid), 0);
}

TEST(Environment, RendezvousOverTheStore) {
    run_ranks(3, {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(test::free_port())}});
}

TEST(Environment, MasterAddressOfIpv6WithAndWithoutBrackets) {
    for (const auto& [host, backend] :
         {std::pair{"[::1]", "auto"}, std::pair{"::1", "auto"}, std::pair{"::1", "gloo"}}) {
        Variables variables = {{"MASTER_ADDR", host},
                               {"MASTER_PORT", std::to_string(test::free_port())},
                               {"TANDEM_COMM", backend}};
        if (test::has_ipv6()) {
            run_ranks(2, variables);
            continue;
        }
        variables.emplace_back("WORLD_SIZE", "2");
        EXPECT_NE(exit_code_of(start_rank(0, variables, "all_gather_sizes")), 0) << "it cannot listen there";
    }
}

TEST(Environment, RendezvousWithASecret) {
    run_ranks(3, {{"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", std::to_string(test::free_port())},
                  {"TANDEM_JOB_SECRET", "0123456789abcdef0123456789abcdef"}});
}

// A rank without it is told so at once, and so is one whose secret is too short.
TEST(Environment, RankWithoutTheSecret) {
    const TcpStoreServer server("127.0.0.1", 0, {.secret = JobSecret("0123456789abcdef")});
    const Variables variables = {
        {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", std::to_string(server.port())}, {"WORLD_SIZE", "2"}};
    EXPECT_NE(exit_code_of(start_rank(1, variables, "all_gather_sizes")), 0);
    Variables with_short = variables;
    with_short.emplace_back("TANDEM_JOB_SECRET", "short");
    EXPECT_NE(exit_code_of(start_rank(1, with_short, "all_gather_sizes")), 0);
}

TEST(Environment, TorchrunKeepsItsOwnPort) {
    const TcpStoreServer agent("127.0.0.1",
                               test::free_port());  // stands for torchrun's store: the port is taken
    run_ranks(2, {{"MASTER_ADDR", "127.0.0.1"},
                  {"MASTER_PORT", std::to_string(agent.port())},
                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
}

TEST(Environment, OneRankNeedsNobody) {
    run_ranks(1, {});
}

// A rank that ends without a launcher watching it is noticed and named, long before the deadline.
TEST(Environment, RankThatIsGone) {
    const Variables variables = {{"MASTER_ADDR", "localhost"},
                                 {"MASTER_PORT", std::to_string(test::free_port())},
                                 {"WORLD_SIZE", "2"}};
    const auto start = Deadline::Clock::now();
    const pid_t first = start_rank(0, variables, "exits_with_7");
    const pid_t second = start_rank(1, variables, "exits_with_7");
    EXPECT_EQ(exit_code_of(second), 7);
    EXPECT_EQ(exit_code_of(first), 1);
    EXPECT_LT(Deadline::Clock::now() - start, std::chrono::seconds(40));  // it is 60 s
}

}  // namespace
}  // namespace tandem::comm
