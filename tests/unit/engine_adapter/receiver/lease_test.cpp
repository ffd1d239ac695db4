// What becomes of a pause and an open version when their trainer says nothing, or leaves.
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using namespace std::chrono_literals;

class Lease : public ReceiverRig {
  protected:
    Lease() : ReceiverRig({.greeting = 200ms}) {}

    std::unique_ptr<Engine> connect_for(std::chrono::milliseconds lease, std::uint64_t ranks = 1) {
        auto engine = engine::connect(receiver_->address(), soon(), {.lease = lease});
        plan_.ranks = ranks;
        engine->attach(regions(), plan_, soon());
        return engine;
    }
    // Everything but the resume.
    void commit(Engine& engine, std::int64_t version) {
        engine.pause(soon());
        push(engine, version, 5);
    }
    void wait_until_let_go() const {
        for (int i = 0; i < 1000 && target_.held(); ++i) std::this_thread::sleep_for(10ms);
        ASSERT_FALSE(target_.held());
    }
};

TEST_F(Lease, ASilentTrainerLosesItsPauseAndItsSeat) {
    const auto silent = connect_for(200ms);
    silent->pause(soon());
    EXPECT_TRUE(target_.held());
    wait_until_let_go();
    EXPECT_TRUE(target_.serves());
    EXPECT_THROW(silent->begin(2, soon()), TransportError);
    push(*connect(), 2, 7);
}

TEST_F(Lease, ASilentTrainerBetweenPushesKeepsItsSeatUntilAnotherWantsIt) {
    const auto silent = connect_for(200ms);
    std::this_thread::sleep_for(300ms);
    push(*silent, 1, 3);
    std::this_thread::sleep_for(300ms);
    push(*connect(), 2, 7);
    EXPECT_TRUE(target_.serves());
    EXPECT_THROW(silent->begin(3, soon()), TransportError);
}

TEST_F(Lease, ATrainerWithinItsLeaseKeepsItsSeat) {
    const auto silent = connect_for(60s);
    EXPECT_THROW(engine::connect(receiver_->address(), Deadline::after_ms(300)), TransportError);
    push(*silent, 1, 3);
}

TEST_F(Lease, AVersionThatWasNotWrittenIsGivenUp) {
    const auto silent = connect_for(200ms);
    silent->pause(soon());
    silent->begin(2, soon());
    EXPECT_FALSE(target_.serves());
    wait_until_let_go();
    EXPECT_TRUE(target_.serves());
    EXPECT_THAT(target_.reason(), testing::HasSubstr("as long as its lease"));
}

TEST_F(Lease, OneThatWasWrittenInPartIsRefused) {
    const auto silent = connect_for(200ms);
    silent->pause(soon());
    silent->begin(2, soon());
    stage(1);
    load(*silent, 0, checksums());
    silent->buckets().wait_loaded(0, soon());
    wait_until_let_go();
    EXPECT_TRUE(target_.refusing());
    push(*connect(), 3, 7);
    EXPECT_FALSE(target_.refusing());
}

TEST_F(Lease, EveryRequestRenewsIt) {
    const auto engine = connect_for(500ms);
    engine->pause(soon());
    for (int i = 0; i < 10; ++i) {
        std::this_thread::sleep_for(100ms);
        engine->held(soon());
    }
    EXPECT_TRUE(target_.held());
    engine->resume(soon());
    EXPECT_TRUE(target_.serves());
}

TEST_F(Lease, BetweenPushesATrainerMayTakeItsTime) {
    const auto engine = connect_for(100ms);
    commit(*engine, 2);
    engine->resume(soon());
    std::this_thread::sleep_for(500ms);
    EXPECT_EQ(engine->held(soon()).version, 2);
}

TEST_F(Lease, AConnectionWithoutHelloIsClosed) {
    const Channel mute = Channel::connect(receiver_->address(), soon());
    push(*connect_again(), 2, 7);
    EXPECT_TRUE(mute.hung_up());
}

TEST_F(Lease, AnOnlyRankServesWhatATrainerCommittedBeforeItDied) {
    commit(*connect_for(60s), 2);  // and the connection is closed
    wait_until_let_go();
    EXPECT_TRUE(target_.serves());
    EXPECT_EQ(target_.version(), 2);
}

TEST_F(Lease, OneOfSeveralRanksDoesNot) {
    commit(*connect_for(60s, 2), 2);
    wait_until_let_go();
    EXPECT_TRUE(target_.refusing());
    EXPECT_THAT(target_.reason(), testing::HasSubstr("before every rank of this engine had it"));
    EXPECT_EQ(connect_again()->held(soon()).version, 0);
    plan_.ranks = 1;
    push(*connect_again(), 3, 7);
    EXPECT_TRUE(target_.serves());
}

TEST_F(Lease, AnAbortGivesThePauseBack) {
    const auto engine = connect_for(60s);
    engine->pause(soon());
    engine->abort("changed its mind", soon());
    EXPECT_TRUE(target_.serves());
}

TEST_F(Lease, VersionsGrowUnlessAPushSaysThatItGoesBack) {
    {
        const auto engine = connect();
        push(*engine, 5, 1);
        EXPECT_THROW(engine->begin(5, soon()), ProtocolError);
        EXPECT_THROW(engine->begin(4, soon()), ProtocolError);
        push(*engine, 6, 2);
    }
    EXPECT_THROW(connect_again()->begin(6, soon()), ProtocolError);
    for (int i = 0;; ++i) {
        try {
            const auto back = engine::connect(receiver_->address(), soon(), {.rollback = true});
            back->attach(regions(), plan_, soon());
            push(*back, 1, 3);
            EXPECT_THROW(back->begin(1, soon()), ProtocolError);  // once
            break;
        } catch (const TransportError&) {
            ASSERT_LT(i, 500);
            std::this_thread::sleep_for(5ms);
        }
    }
    expect_weights(3);
}

}  // namespace
}  // namespace tandem::engine
