// Spans as Chrome's trace viewer wants them.
#include "common/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <latch>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "common/error.h"
#include "common/trace_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;

// One process-wide recorder: the order of these checks is part of the test.
TEST(Trace, RecordsOnlyWhenEnabledAndHandsOutOnce) {
    { const trace::Scope early("early", "test"); }
    EXPECT_FALSE(trace::enabled());
    EXPECT_EQ(json::parse(trace::take_json()), json::array());

    trace::enable("rank 3", 3);
    {
        const trace::Scope outer("step \"1\" \xff",
                                 "train");  // quotes and broken UTF-8 must not break the file
        const trace::Scope inner("gather", "sync");
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    const json events = json::parse(trace::take_json());
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0]["ph"], "M");
    EXPECT_EQ(events[0]["args"]["name"], "rank 3");
    EXPECT_EQ(events[1]["name"], "gather");  // in the order in which they ended
    EXPECT_EQ(events[1]["cat"], "sync");
    EXPECT_EQ(events[1]["ph"], "X");
    EXPECT_EQ(events[1]["pid"], 3);
    EXPECT_GE(events[1]["dur"].get<int>(), 3000);
    const auto start = [](const json& e) { return e["ts"].get<long long>(); };
    const auto end = [&](const json& e) { return start(e) + e["dur"].get<long long>(); };
    EXPECT_LE(start(events[2]), start(events[1]));  // the outer span covers the inner one
    EXPECT_GE(end(events[2]), end(events[1]));
    EXPECT_EQ(json::parse(trace::take_json()).size(), 1u);  // only the process's name is left
}

TEST(Trace, ThreadsHaveRowsOfTheirOwn) {
    trace::enable("rank 3", 3);
    (void)trace::take_json();
    std::latch all_running(4), all_done(4);  // a thread that has ended may pass its id on
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            all_running.arrive_and_wait();
            for (int i = 0; i < 50; ++i) trace::Scope("work", "test");
            all_done.arrive_and_wait();
        });
    }
    for (std::thread& thread : threads) thread.join();
    const json events = json::parse(trace::take_json());
    std::set<int> rows;
    int spans = 0;
    for (const json& event : events) {
        if (event["ph"] != "X") continue;
        ++spans;
        rows.insert(event["tid"].get<int>());
    }
    EXPECT_EQ(spans, 200);
    EXPECT_EQ(rows.size(), 4u);
}

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("tandem_trace_test." + std::to_string(::getpid()))) {
        fs::create_directories(path);
    }
    ~Folder() { fs::remove_all(path); }
    fs::path path;
};

std::string names(const std::string& file) {
    std::ifstream in(file);
    std::string result;
    const json content = json::parse(in);
    for (const json& event : content.at("traceEvents")) result += event.at("name").get<std::string>() + " ";
    return result;
}

TEST(TraceFile, HoldsThePartsInOrderAndGrows) {
    const Folder folder;
    const std::string file = (folder.path / "trace.json").string();
    trace::write_file(file,
                      {R"([{"name": "a"}, {"name": "b"}])", "cut sho", "3", "[]", R"([{"name": "c"}])"});
    EXPECT_EQ(names(file), "a b c ");
    trace::add_to_file(file, {R"([{"name": "d"}])"});
    EXPECT_EQ(names(file), "a b c d ");
    trace::write_file(file, {});
    EXPECT_EQ(names(file), "");
    trace::add_to_file((folder.path / "new.json").string(), {R"([{"name": "e"}])"});
    EXPECT_EQ(names((folder.path / "new.json").string()), "e ");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 2);  // nothing half written
    try {
        trace::write_file((folder.path / "nowhere" / "trace.json").string(), {});
        FAIL() << "there is no such folder";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.error_number(), ENOENT) << error.what();
    }
}

}  // namespace
}  // namespace tandem
