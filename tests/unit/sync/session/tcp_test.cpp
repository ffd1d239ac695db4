// A session whose engines are reached over TCP: the first buckets travel while they pause, and the commit is asked for
// behind the last one.
#include <gmock/gmock.h>

#include <array>
#include <memory>
#include <tuple>

#include "engine_adapter/tandem/engine.h"
#include "sync/strategy/collectives.h"
#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

// What goes wrong at one engine rank.
struct Trouble {
    bool pause = false;       // paused, and the answer is lost
    int wrong_checksum = -1;  // of that bucket
};

class TroubledEngine final : public ForwardingEngine {
  public:
    TroubledEngine(std::unique_ptr<engine::Engine> engine, Trouble& trouble)
        : ForwardingEngine(std::move(engine)), trouble_(trouble) {}
    void pause(Deadline deadline) override {
        ForwardingEngine::pause(deadline);
        if (trouble_.pause) throw DeadlineExceeded(peer(), "pause", "no answer");
    }
    void load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) override {
        std::vector<ops::Checksum> changed(checksums.begin(), checksums.end());
        if (bucket == trouble_.wrong_checksum) changed.front().low ^= 1;
        ForwardingEngine::load(bucket, changed, deadline);
    }
    void commit_ahead(std::int64_t version, const ops::Checksum& manifest, bool only_rank,
                      Deadline deadline) override {
        engine_->commit_ahead(version, manifest, only_rank, deadline);
    }

  private:
    Trouble& trouble_;
};

class OverTcp : public testing::TestWithParam<std::tuple<Mode, std::size_t>> {
  protected:
    OverTcp() {
        engine::ReceiverOptions options;
        options.copy_threads = 2;
        options.data_plane = engine::TcpListen{.key = "a key"};
        for (std::size_t e = 0; e < engines(); ++e) {
            targets_.push_back(std::make_unique<TestTarget>(tensors_));
            receivers_.push_back(std::make_unique<engine::Receiver>(*targets_.back(), options));
        }
    }
    static Mode mode() { return std::get<0>(GetParam()); }
    static std::size_t engines() { return std::get<1>(GetParam()); }

    // Two trainer ranks; `body` follows version 1, with step 1's weights.
    void run(const Body& body) {
        SessionOptions options = options_for(mode());
        options.depth = 3;
        std::size_t made = 0;
        with_receivers(
            {{2}, {Shard(0)}}, receivers_, tensors_, DType::bfloat16, options,
            [&](comm::Communicator& world, Session& session, TestSource& source) {
                source.set_step(1);
                session.push(1);
                body(world, session, source);
            },
            [&](std::unique_ptr<engine::Engine> inner) {
                const std::string port = std::to_string(receivers_[made]->data_port());
                dynamic_cast<engine::TandemEngine&>(*inner).go_over_tcp({"127.0.0.1", port}, {});
                return std::make_unique<TroubledEngine>(std::move(inner), troubles_[made++]);
            });
    }
    void expect_served(int step) const {
        for (const auto& target : targets_) {
            EXPECT_TRUE(target->serves());
            EXPECT_EQ(target->version(), step);
            expect_weights(*target, DType::bfloat16, step);
        }
    }

    const std::vector<TensorInfo> tensors_ = test_tensors(DType::bfloat16);
    std::vector<std::unique_ptr<TestTarget>> targets_;
    Receivers receivers_;
    std::array<Trouble, 2> troubles_;
};
using OverTcpAhead = OverTcp;  // modes that ask for the commit ahead

std::string name_of(const testing::TestParamInfo<std::tuple<Mode, std::size_t>>& info) {
    return fmt::format("{}_{}", mode_name(std::get<0>(info.param)), std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Modes, OverTcp,
                         testing::Combine(testing::Values(Mode::gather, Mode::direct, Mode::delta),
                                          testing::Values(1u, 2u)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Modes, OverTcpAhead,
                         testing::Combine(testing::Values(Mode::gather, Mode::direct),
                                          testing::Values(1u, 2u)),
                         name_of);

TEST_P(OverTcp, EachVersionIsServedWhenItsPushReturns) {
    run([&](comm::Communicator& world, Session& session, TestSource& source) {
        for (int step = 2; step < 6; ++step) {
            source.set_step(step);
            session.push(step);
            if (world.rank() == 0) expect_served(step);
        }
        EXPECT_TRUE(session.weights_match().match);
    });
}

TEST_P(OverTcp, APauseThatFailsLeavesTheWeightsAndWhatTravelledAheadIsForgotten) {
    run([&](comm::Communicator& world, Session& session, TestSource& source) {
        for (std::size_t e = 0; e < engines(); ++e) {
            const int step = static_cast<int>(e) * 2 + 2;
            if (world.rank() == 0) troubles_[e].pause = true;
            source.set_step(step);
            EXPECT_EQ(phase_of_failure(session, step), "pause");
            if (world.rank() == 0) {
                expect_served(step - 1);
                troubles_[e].pause = false;
            }
            source.set_step(step + 1);
            session.push(step + 1);
            if (world.rank() == 0) expect_served(step + 1);
        }
    });
}

// The last rank's last bucket: the other one has been asked to commit, and may have.
TEST_P(OverTcpAhead, ABucketThatIsRefusedLeavesNoRankServing) {
    run([&](comm::Communicator& world, Session& session, TestSource& source) {
        source.set_step(2);
        const int buckets = session.push(2).buckets;
        EXPECT_GT(buckets, 3);
        if (world.rank() == 0) troubles_[engines() - 1].wrong_checksum = buckets - 1;
        source.set_step(3);
        EXPECT_EQ(phase_of_failure(session, 3), "load");
        if (world.rank() == 0) {
            for (const auto& target : targets_) EXPECT_FALSE(target->serves());
            troubles_[engines() - 1].wrong_checksum = -1;
        }
        source.set_step(4);
        session.push(4);
        if (world.rank() == 0) expect_served(4);
        EXPECT_TRUE(session.weights_match().match);
    });
}

}  // namespace
}  // namespace tandem::sync
