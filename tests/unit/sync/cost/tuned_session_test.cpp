// A session uses the cost model: buckets are chosen once, and kept.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sync/cost/tune.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

std::vector<TensorInfo> tuned_tensors() {
    return {{"a", {300, 7}, DType::bfloat16, {}}};
}
std::vector<TensorInfo> large_tensors() {
    return {{"a", {4096, 2100}, DType::float32, {}}};
}

class TunedSession : public ::testing::Test {
  protected:
    TunedSession()
        : folder_(std::filesystem::temp_directory_path() / ("tandem-tuned-" + std::to_string(::getpid()))) {
        ::setenv("TANDEM_CACHE_DIR", folder_.c_str(), 1);
    }
    ~TunedSession() override {
        ::unsetenv("TANDEM_CACHE_DIR");
        std::filesystem::remove_all(folder_);
    }
    // Rank 1's session after a push that succeeded. Unless options say where the cores are, they stay: on a machine that
    // moves them, costs kept for one state are not found in the other.
    nlohmann::json tuning(const std::vector<TensorInfo>& tensors, SessionOptions options) {
        if (!options.core_ns) options.core_ns = [] { return 25.0; };
        TestTarget target(tensors);
        nlohmann::json result;
        with_session({{2}, {Shard(0)}}, target, DType::bfloat16, options,
                     [&](comm::Communicator& world, Session& session, TestSource&) {
                         const SyncReport report = session.push(1);
                         EXPECT_TRUE(session.weights_match().match);
                         if (world.rank() != 1) return;
                         result = to_json(session.tuning());
                         result["bucket_bytes"] = report.bucket_bytes;
                         result["depth"] = report.depth;
                         EXPECT_EQ(report.predicted_ms, result.value("predicted_ms", 0.0));
                     });
        return result;
    }
    std::filesystem::path folder_;
};

TEST_F(TunedSession, MeasuresOnceAndChooses) {
    const nlohmann::json first = tuning(large_tensors(), {});
    EXPECT_EQ(first.at("chosen_by"), "cost model");
    EXPECT_GT(first.at("predicted_ms").get<double>(), 0.1);
    EXPECT_EQ(first.at("calibration").at("age_s"), 0);
    EXPECT_GE(first.at("depth").get<int>(), 1);

    SessionOptions wish;
    wish.bucket_bytes = 3u << 20;
    nlohmann::json second = tuning(large_tensors(), wish);
    EXPECT_EQ(second.at("chosen_by"), "cost model") << "of the depth";
    EXPECT_LE(second.at("bucket_bytes").get<std::size_t>(), 3u << 20);
    EXPECT_GE(second.at("calibration").at("age_s").get<int>(), 1);
    EXPECT_EQ(second.at("calibration").at("fill"), first.at("calibration").at("fill"));

    wish.depth = 5;
    second = tuning(large_tensors(), wish);
    EXPECT_EQ(second.at("chosen_by"), "user");
    EXPECT_EQ(second.at("depth"), 5);
    EXPECT_TRUE(second.contains("predicted_ms"));

    wish.mode = Mode::direct;
    EXPECT_TRUE(tuning(large_tensors(), wish).contains("predicted_ms"));
    wish.calibrate = true;
    EXPECT_EQ(tuning(large_tensors(), wish).at("calibration").at("age_s"), 0);
}

// Costs as they would be measured: little staging where cores share a cache, one bucket where they are apart.
void make_states_differ(const std::filesystem::path& file) {
    nlohmann::json json = nlohmann::json::parse(std::ifstream(file));
    ASSERT_EQ(json.at("entries").size(), 2u);
    for (auto& [key, costs] : json.at("entries").items()) {
        const bool apart = key.find("cores: apart") != std::string::npos;
        for (const char* stage : {"fill", "load", "both", "lockstep", "turns", "relay"}) {
            costs[stage] = {{"overhead_ms", apart ? 50 : 0},
                            {"cached_gbps", apart ? 1 : 40},
                            {"streamed_gbps", apart ? 20 : 10}};
        }
        costs["cache_bytes"] = 32u << 20;
        costs["took_ms"] =
            1e9;  // pushes do not take what these costs say: that is never reason enough to measure
    }
    std::ofstream(file) << json;
}

TEST_F(TunedSession, FollowsTheMachineFromPushToPush) {
    std::atomic<double> ns{25};
    SessionOptions options;
    options.core_ns = [&ns] { return ns.load(); };
    tuning(large_tensors(), options);
    ns = 240;
    tuning(large_tensors(), options);
    make_states_differ(folder_ / "costs.json");

    TestTarget target(large_tensors());
    ns = 25;
    with_session({{2}, {Shard(0)}}, target, DType::bfloat16, options,
                 [&](comm::Communicator& world, Session& session, TestSource&) {
                     std::vector<SyncReport> reports;
                     for (int version = 1; version <= 9; ++version) {
                         if (world.rank() == 0) ns = version <= 3 || version > 6 ? 25 : 240;
                         world.barrier();
                         reports.push_back(session.push(version));
                         EXPECT_TRUE(session.weights_match().match) << version;
                     }
                     EXPECT_GT(reports[2].buckets, 4);
                     EXPECT_EQ(reports[3].buckets, reports[2].buckets) << "one look is not enough";
                     EXPECT_EQ(reports[4].buckets, 1);
                     EXPECT_EQ(reports[5].buckets, 1);
                     EXPECT_EQ(reports[8].buckets, reports[2].buckets);
                     const nlohmann::json machine = to_json(session.tuning()).at("machine");
                     EXPECT_EQ(machine.at("cores"), "share a cache");
                     EXPECT_EQ(machine.at("buckets_changed"), 2);
                     EXPECT_EQ(machine.at("measured_again"), 0);
                 });
}

TEST_F(TunedSession, LeavesSmallModelsAndOtherModesAlone) {
    EXPECT_EQ(tuning(tuned_tensors(), {}).at("chosen_by"), "default");
    SessionOptions options;
    options.mode = Mode::delta;
    const nlohmann::json delta = tuning(large_tensors(), options);
    EXPECT_EQ(delta.at("chosen_by"), "default");
    EXPECT_FALSE(delta.contains("predicted_ms"));
    EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace tandem::sync
