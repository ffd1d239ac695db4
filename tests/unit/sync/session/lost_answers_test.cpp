// An engine that does what it is told and whose answer is lost on the way.
#include <gmock/gmock.h>

#include <array>

#include "tests/unit/sync/session/forwarding_engine.h"
#include "tests/unit/sync/session/session_rig.h"

namespace tandem::sync {
namespace {

constexpr std::array kModesThatAnswer{Mode::gather, Mode::direct, Mode::alias, Mode::delta};

struct Losses {
    bool commit = false;
    bool resume = false;
    std::function<void()> before_pause = [] {};
};

class LosingEngine final : public ForwardingEngine {
  public:
    LosingEngine(std::unique_ptr<engine::Engine> engine, Losses& losses)
        : ForwardingEngine(std::move(engine)), losses_(losses) {}
    void pause(Deadline deadline) override {
        losses_.before_pause();
        ForwardingEngine::pause(deadline);
    }
    void commit(std::int64_t version, const ops::Checksum& manifest, Deadline deadline) override {
        ForwardingEngine::commit(version, manifest, deadline);
        if (losses_.commit) throw DeadlineExceeded(peer(), "commit", "no answer");
    }
    void resume(Deadline deadline) override {
        ForwardingEngine::resume(deadline);
        if (losses_.resume) throw DeadlineExceeded(peer(), "resume", "no answer");
    }

  private:
    Losses& losses_;
};

class LostAnswers : public testing::TestWithParam<Mode> {
  protected:
    void run(const std::vector<TestTarget*>& targets, const Body& body) {
        with_engines({{2}, {Shard(0)}}, targets, tensors_, DType::bfloat16, options_for(GetParam()), body,
                     [this](std::unique_ptr<engine::Engine> inner) {
                         return std::make_unique<LosingEngine>(std::move(inner), losses_[made_++]);
                     });
    }

    const std::vector<TensorInfo> tensors_ = test_tensors(DType::bfloat16);
    std::array<Losses, 2> losses_;
    std::size_t made_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Modes, LostAnswers, testing::ValuesIn(kModesThatAnswer),
                         [](const auto& info) { return std::string(mode_name(info.param)); });

// The engine serves the version, so the next one is prepared elsewhere than where it reads.
TEST_P(LostAnswers, AfterAResumeTheVersionIsDecided) {
    TestTarget target(tensors_);
    run({&target}, [&](comm::Communicator& world, Session& session, TestSource& source) {
        source.set_step(1);
        session.push(1);
        if (world.rank() == 0) losses_[0].resume = true;
        source.set_step(2);
        EXPECT_EQ(phase_of_failure(session, 2), "resume");
        EXPECT_EQ(session.version(), 2);
        if (world.rank() == 0) {
            EXPECT_TRUE(target.serves());
            losses_[0] = {.before_pause = [&] { expect_weights(target, DType::bfloat16, 2); }};
        }
        source.set_step(3);
        session.push(3);
        if (world.rank() == 0) expect_weights(target, DType::bfloat16, 3);
        EXPECT_TRUE(session.weights_match().match);
    });
}

// The trainer cannot know whether the engine has the version; nothing that it serves changes under it.
TEST_P(LostAnswers, AfterACommitTheEngineServesOneVersionOrNone) {
    TestTarget target(tensors_);
    run({&target}, [&](comm::Communicator& world, Session& session, TestSource& source) {
        source.set_step(1);
        session.push(1);
        if (world.rank() == 0) losses_[0].commit = true;
        source.set_step(2);
        EXPECT_EQ(phase_of_failure(session, 2), "commit");
        if (world.rank() == 0) {
            EXPECT_FALSE(target.held());
            EXPECT_EQ(target.refusing(), GetParam() == Mode::alias);  // else it is the only rank, and whole
            losses_[0] = {.before_pause = [&] {
                if (target.serves()) expect_weights(target, DType::bfloat16, 2);
            }};
        }
        source.set_step(3);
        session.push(3);
        EXPECT_TRUE(target.serves());
        EXPECT_TRUE(session.weights_match().match);
    });
}

// Engine rank 0 has the version and rank 1 may not: neither is served by one rank alone.
TEST_P(LostAnswers, NoEngineRankServesWhatAnotherMayLack) {
    for (const std::size_t loses : {0u, 1u}) {
        made_ = 0;
        losses_ = {};
        TestTarget first(tensors_), second(tensors_);
        run({&first, &second}, [&](comm::Communicator& world, Session& session, TestSource& source) {
            source.set_step(1);
            session.push(1);
            if (world.rank() == 0) losses_[loses].commit = true;
            source.set_step(2);
            EXPECT_EQ(phase_of_failure(session, 2), "commit");
            if (world.rank() == 0) {
                EXPECT_FALSE(first.held() || second.held());
                EXPECT_TRUE(first.refusing());
                // The second was not asked to commit when the first one's answer was lost.
                EXPECT_EQ(second.serves(), loses == 0 && GetParam() == Mode::alias);
                losses_ = {};
            }
            source.set_step(3);
            session.push(3);
            EXPECT_TRUE(first.serves() && second.serves());
            EXPECT_TRUE(session.weights_match().match);
        });
    }
}

}  // namespace
}  // namespace tandem::sync
