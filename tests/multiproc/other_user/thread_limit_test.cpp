// Where no more threads can be made (ulimit -u, a container's limit of pids) both ends of a push refuse by name, nobody
// aborts, and the next push, with room, succeeds. Of a user whom the limit binds: root's are not counted.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "common/resolve.h"
#include "common/thread.h"
#include "tests/contract/transport/tcp_rig.h"
#include "tests/multiproc/other_user/as_nobody.h"

namespace tandem::engine {
namespace {

using test::exit_code_of;
using test::start_as_nobody;

// What counts against RLIMIT_NPROC.
rlim_t threads_of_this_user() {
    rlim_t count = 0;
    std::error_code gone;
    for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
        std::ifstream status(process.path() / "status");
        rlim_t threads = 0;
        bool ours = false;
        for (std::string word; status >> word;) {
            if (word == "Uid:") {
                uid_t real = 0;
                ours = static_cast<bool>(status >> real) && real == ::getuid();
            }
            if (word == "Threads:") status >> threads;
        }
        if (ours) count += threads;
    }
    return count;
}

void limit_threads(rlim_t most) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NPROC, &limit);
    limit.rlim_cur = std::min(most, limit.rlim_max);
    ::setrlimit(RLIMIT_NPROC, &limit);
}

// Trainer and engine in one process.
class BothEnds : public OverTcp {
  public:
    void TestBody() override {}
    std::string push_over_connections(int connections, int value) {
        return error_of([&] {
            TandemEngine engine(Channel::connect(receiver_->address(), soon()), ConnectOptions{}, soon());
            engine.go_over_tcp({"127.0.0.1", std::to_string(receiver_->data_port())},
                               {.connections = connections});
            engine.attach({{{memory_.data(), memory_.size()}}}, plan_, soon());
            push(engine, value, value, soon());
        });
    }
};

TEST(ThreadLimit, BothEndsOfAPushRefuseAndTheNextSucceeds) {
    ASSERT_EQ(::getuid(), 0U) << "leave these tests out with ctest -LE root";
    const pid_t child = start_as_nobody([] {
        BothEnds ends;
        const rlim_t unlimited = RLIM_INFINITY, at_rest = threads_of_this_user();
        if (!ends.push_over_connections(8, 1).empty()) return 1;
        // The engine has none for the first data connection, and says so: a trainer that is sent away comes again.
        limit_threads(0);
        const auto begun = std::chrono::steady_clock::now();
        const std::string none = ends.push_over_connections(1, 2);
        limit_threads(unlimited);
        if (none.find("has no thread left for a connection of it") == std::string::npos) return 5;
        if (std::chrono::steady_clock::now() - begun > std::chrono::seconds(10)) return 2;
        int refused = 0, version = 2;
        for (rlim_t more = 0; more <= 17; ++more) {
            limit_threads(at_rest + more);
            const auto begin = std::chrono::steady_clock::now();
            const std::string error = ends.push_over_connections(8, ++version);
            limit_threads(unlimited);
            if (!error.empty()) ++refused;
            // At once, not at the deadline of a minute.
            if (std::chrono::steady_clock::now() - begin > std::chrono::seconds(10)) return 2;
            if (!ends.push_over_connections(8, ++version).empty()) return 3;
        }
        return refused > 0 ? 0 : 4;
    });
    EXPECT_EQ(exit_code_of(child), 0)
        << "2: late, 3: the next push failed, 4: none was refused, 5: not by name; 134: aborted";
}

TEST(ThreadLimit, IsNamedAndALookupTriesAgain) {
    ASSERT_EQ(::getuid(), 0U) << "leave these tests out with ctest -LE root";
    const pid_t child = start_as_nobody([] {
        limit_threads(0);
        const std::string error = error_of([] { Thread("of a test", [] {}); });
        if (error.find("no thread for of a test") == std::string::npos) return 1;
        if (error_of([] { start_call("a call", [] { return 1; }); }).empty()) return 2;
        const Lookup known = [](const std::string&) { return resolve("127.0.0.1", 0, soon()); };
        const auto look_up = [&] { return error_of([&] { resolve("node7", 80, soon(), known); }); };
        if (look_up().empty()) return 3;
        limit_threads(RLIM_INFINITY);
        return look_up().empty() ? 0 : 4;
    });
    EXPECT_EQ(exit_code_of(child), 0);
}

}  // namespace
}  // namespace tandem::engine
