// Calibration of the cost model with real ranks and receivers.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "common/stopwatch.h"
#include "sync/cost/calibrate.h"
#include "sync/cost/cores.h"
#include "sync/cost/store.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

std::vector<TensorInfo> small_tensors() {
    return {{"a", {300, 7}, DType::bfloat16, {}}};
}

CalibrationOptions one_round() {
    CalibrationOptions options;
    options.budget = std::chrono::milliseconds(0);
    options.deadline = std::chrono::seconds(60);
    options.cache_bytes = 1u << 20;  // small buckets, whatever this machine has
    return options;
}

using Check = std::function<void(comm::Communicator&, const Engines&)>;
void with_ranks(int ranks, const Receivers& receivers, const Check& check) {
    comm::run_threads(ranks, [&](std::shared_ptr<comm::Communicator> world) {
        Engines engines;
        if (world->rank() == 0) {
            for (const auto& receiver : receivers)
                engines.push_back(engine::connect(receiver->address(), soon()));
        }
        check(*world, engines);
    });
}

#ifdef TANDEM_SANITIZE_thread
constexpr double kLeastGbps = 1e-4;  // hashing runs at 0.01 there beside other work
#else
constexpr double kLeastGbps = 0.01;
#endif

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
        for (const Stage& stage : {costs.fill, costs.load, costs.both, costs.lockstep, costs.turns}) {
            EXPECT_GT(stage.streamed_gbps, kLeastGbps);
            EXPECT_LT(stage.streamed_gbps, 10'000);
        }
        EXPECT_GT(costs.hash_gbps, kLeastGbps);
        EXPECT_GT(costs.fixed_ms, 0);
        EXPECT_GE(costs.took_ms, costs.fixed_ms);
        EXPECT_LE(std::abs(seconds_since_1970() - costs.measured_at), 60);
    }
    EXPECT_EQ(memory_stats("calibration").live_bytes, 0u);
    EXPECT_EQ(memory_stats("staging").peak_bytes, 0u) << "not what staging is held to";
}

// Ranks that do not run at once, as on a busy machine, see nothing; then and when they do, no rank waits for long.
TEST(CoreDistance, IsMeasuredOnRank0OrNot) {
    for (const int ranks : {1, 2, 3}) {
        comm::run_threads(ranks, [&](std::shared_ptr<comm::Communicator> world) {
            CoreDistance distance(*world);
            for (int i = 0; i < 50; ++i) {
                world->barrier();
                const std::optional<double> found = distance.measure();
                if (ranks == 1 || world->rank() > 0) {
                    EXPECT_FALSE(found);
                } else if (found) {
                    EXPECT_GT(*found, 0);
                }
            }
        });
    }
    EXPECT_EQ(memory_stats("core distance").live_bytes, 0u);
}

// Its copies take at least as long as kBytesPerSecond lets them.
class SlowCopies final : public ForwardingEngine {
  public:
    using ForwardingEngine::ForwardingEngine;
    static constexpr double kBytesPerSecond = 0.5e9;
    double probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece, Deadline deadline) override {
        const auto least = std::chrono::duration<double>(static_cast<double>(bytes) / kBytesPerSecond);
        const Stopwatch stopwatch;
        const auto until = std::chrono::steady_clock::now() + least;
        ForwardingEngine::probe(offset, bytes, piece, deadline);
        std::this_thread::sleep_until(until);
        return stopwatch.ms();
    }
};

TEST(Calibrate, SeesThatAnEngineIsSlow) {
    TestTarget target(small_tensors());
    const Receivers receivers = make_receivers({&target});
    Costs costs;
    comm::run_threads(1, [&](std::shared_ptr<comm::Communicator> world) {
        Engines engines;
        engines.push_back(std::make_unique<SlowCopies>(engine::connect(receivers[0]->address(), soon())));
        costs = calibrate(*world, engines, one_round());
    });
    // No bucket is faster than that, however unevenly this machine ran: the largest one that was measured
    // costs what it took, and up to there (at least this far) costs grow evenly from something above nothing.
    constexpr double kBytes = 64 << 10;
    constexpr double kLeastMs = kBytes / SlowCopies::kBytesPerSecond * 1e3;
    EXPECT_GT(costs.load.ms(kBytes, false), 0.9 * kLeastMs);
    EXPECT_GT(costs.both.ms(kBytes, false), 0.9 * kLeastMs);
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

}  // namespace
}  // namespace tandem::sync
