// The cost model on this machine: calibration with real ranks and receivers, and what a session makes of it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sync/cost/calibrate.h"
#include "sync/cost/store.h"
#include "tests/unit/sync/session_rig.h"

namespace tandem::sync {
namespace {

std::vector<TensorInfo> small_tensors() {
    return {{"a", {300, 7}, DType::bfloat16, {}}};
}
std::vector<TensorInfo> large_tensors() {
    return {{"a", {4096, 2100}, DType::float32, {}}};
}

CalibrationOptions one_round() {
    CalibrationOptions options;
    options.budget = std::chrono::milliseconds(0);
    options.deadline = std::chrono::milliseconds(10'000);
    return options;
}

using Check = std::function<void(comm::Communicator&, const Engines&)>;
void with_ranks(int ranks, const Receivers& receivers, const Check& check) {
    comm::run_threads(ranks, [&](std::shared_ptr<comm::Communicator> world) {
        Engines engines;
        if (world->rank() == 0) {
            for (const auto& receiver : receivers)
                engines.push_back(engine::connect_receiver(receiver->address(), soon()));
        }
        check(*world, engines);
    });
}

TEST(Calibrate, GivesAllRanksTheSameCostsAndLeavesNothing) {
    reset_memory_peaks();
    for (const int ranks : {1, 2}) {
        TestTarget first(small_tensors()), second(small_tensors());
        const Receivers receivers = make_receivers({&first, &second});
        std::vector<Costs> found(static_cast<std::size_t>(ranks));
        with_ranks(ranks, receivers, [&](comm::Communicator& world, const Engines& engines) {
            CalibrationOptions options = one_round();
            options.from = ranks == 2 ? DType::float32 : DType::bfloat16;
            found[static_cast<std::size_t>(world.rank())] = calibrate(world, engines, options);
        });
        for (const Costs& costs : found) EXPECT_EQ(to_json(costs), to_json(found.front()));
        const Costs& costs = found.front();
        for (const Stage& stage : {costs.fill, costs.load, costs.both}) {
            EXPECT_GT(stage.streamed_gbps, 0.01);
            EXPECT_LT(stage.streamed_gbps, 10'000);
        }
        EXPECT_GT(costs.hash_gbps, 0.01);
        EXPECT_GT(costs.fixed_ms, 0);
        EXPECT_GE(costs.took_ms, costs.fixed_ms);
        EXPECT_LE(std::abs(seconds_since_1970() - costs.measured_at), 60);
    }
    EXPECT_EQ(memory_stats("calibration").live_bytes, 0u);
    EXPECT_EQ(memory_stats("staging").peak_bytes, 0u) << "not what staging is held to";
}

TEST(Calibrate, SeesALink) {
    TestTarget target(small_tensors());
    Receivers receivers;
    receivers.push_back(std::make_unique<engine::Receiver>(
        target, engine::ReceiverOptions{.copy_threads = 2, .link_bytes_per_s = 0.5e9}));
    Costs costs;
    with_ranks(1, receivers, [&](comm::Communicator& world, const Engines& engines) {
        costs = calibrate(world, engines, one_round());
    });
    // No bucket is faster than the link, however unevenly this machine ran: the costs of the largest bucket
    // that was measured (at least this one) are what it took.
    constexpr double kBytes = 16 << 20;
    constexpr double kLinkMs = kBytes / 0.5e9 * 1e3;
    EXPECT_GT(costs.load.ms(kBytes, false), 0.9 * kLinkMs);
    EXPECT_GT(costs.both.ms(kBytes, false), 0.9 * kLinkMs);
}

TEST(Calibrate, FailsOnAllRanksAlike) {
    for (const bool gone : {false, true}) {
        TestTarget target(small_tensors());
        Receivers receivers = make_receivers({&target});
        std::vector<std::string> messages(2);
        with_ranks(2, receivers, [&](comm::Communicator& world, const Engines& engines) {
            if (world.rank() == 0 && gone) receivers.clear();
            CalibrationOptions options = one_round();
            if (!gone) options.deadline = std::chrono::milliseconds(0);
            try {
                calibrate(world, engines, options);
            } catch (const SyncError& error) {
                messages[static_cast<std::size_t>(world.rank())] = error.what();
            }
        });
        EXPECT_THAT(messages[0], ::testing::HasSubstr("failed on rank 0 in phase calibrate"));
        EXPECT_EQ(messages[1], messages[0]);
    }
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
    // What rank 1's session says after a push that arrived.
    nlohmann::json tuning(const std::vector<TensorInfo>& tensors, const SessionOptions& options) {
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
    EXPECT_GE(first.at("depth").get<int>(), 2);

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

TEST_F(TunedSession, LeavesSmallModelsAndOtherModesAlone) {
    EXPECT_EQ(tuning(small_tensors(), {}).at("chosen_by"), "default");
    SessionOptions options;
    options.mode = Mode::delta;
    const nlohmann::json delta = tuning(large_tensors(), options);
    EXPECT_EQ(delta.at("chosen_by"), "default");
    EXPECT_FALSE(delta.contains("predicted_ms"));
    EXPECT_FALSE(std::filesystem::exists(folder_));
}

}  // namespace
}  // namespace tandem::sync
