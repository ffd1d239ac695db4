// The bench's trace: every rank's spans arrive in one file, however much each has.
#include "sync/bench/trace.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/comm/launch.h"
#include "common/error.h"
#include "common/trace.h"

namespace tandem::sync {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string temporary_file() {
    return (fs::temp_directory_path() / ("tandem_bench_trace." + std::to_string(::getpid()))).string();
}

// Threads share one recorder: whichever rank comes first takes the spans of all, the others have their
// names only, which is what parts of very different lengths are.
TEST(BenchTrace, HoldsTheSpansOfAllRanksOnce) {
    const std::string file = temporary_file();
    trace::enable("ranks", 0);
    comm::run_threads(4, [&](std::shared_ptr<comm::Communicator> world) {
        for (int i = 0; i < 1000 * world->rank(); ++i)
            const trace::Scope scope("work of rank " + std::to_string(world->rank()), "test");
        write_trace(*world, file);
    });
    std::ifstream in(file);
    std::map<std::string, int> count;
    const json content = json::parse(in);
    for (const json& event : content.at("traceEvents")) ++count[event.at("name").get<std::string>()];
    EXPECT_EQ(count, (std::map<std::string, int>{{"process_name", 4},
                                                 {"work of rank 1", 1000},
                                                 {"work of rank 2", 2000},
                                                 {"work of rank 3", 3000}}));
    fs::remove(file);
}

TEST(BenchTrace, OfOneRankAndToNowhere) {
    const std::string file = temporary_file();
    trace::enable("alone", 0);
    { const trace::Scope scope("gather", "sync"); }
    const auto alone = comm::solo();
    write_trace(*alone, file);
    std::ifstream in(file);
    EXPECT_EQ(json::parse(in).at("traceEvents").size(), 2u);
    fs::remove(file);
    EXPECT_THROW(write_trace(*alone, file + "/nowhere/trace.json"), SystemError);
}

}  // namespace
}  // namespace tandem::sync
