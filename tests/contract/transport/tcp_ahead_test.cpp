// What is sent over TCP ahead of its time: buckets before the engine has paused, the commit before they have arrived.

#include "tests/contract/transport/tcp_rig.h"

namespace tandem::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SentAhead : public OverTcp {};

TEST_F(SentAhead, WhatWasSentAheadOfAPushThatIsGivenUpIsForgotten) {
    const auto engine = trainer(3);
    push(*engine, 1, 7, soon());
    fill(8);
    for (const int b : {0, 1, 2, 3}) engine->buckets().send_ahead(b, soon());  // more than there are slots
    engine->abort("the pause failed", soon());
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    push(*engine, 2, 9, soon());
    expect_all(9);
    EXPECT_EQ(proxy_->accepted(), 6);  // over other connections
}

TEST_F(SentAhead, ABitThatFlipsAheadOfThePauseIsRefusedByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    fill(8);
    proxy_->misbehave(Mischief::corrupt, 500'000);
    const auto all = checksums();
    engine->buckets().send_ahead(0, soon());
    engine->begin(2, soon());
    engine->buckets().load(0, std::span(all).subspan(0, 1), soon());
    EXPECT_THAT(error_of([&] { engine->buckets().wait_loaded(0, soon()); }),
                AllOf(HasSubstr("'big'"), HasSubstr("rank 3"), HasSubstr("is corrupted")));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(SentAhead, ALinkThatIsCutWhileABucketTravelsAheadEndsWithinTheDeadlineByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    for (const Mischief how : {Mischief::stall, Mischief::cut}) {
        fill(8);
        proxy_->misbehave(how, 500'000);
        const auto all = checksums();
        const auto start = std::chrono::steady_clock::now();
        const std::string why = error_of([&] {
            engine->buckets().send_ahead(0, Deadline::after_ms(700));
            engine->begin(2, Deadline::after_ms(700));
            engine->buckets().load(0, std::span(all).subspan(0, 1), Deadline::after_ms(700));
            engine->buckets().wait_loaded(0, Deadline::after_ms(700));
        });
        EXPECT_THAT(why, AllOf(HasSubstr("load bucket 0"), HasSubstr(engine->peer())));
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
        engine->abort("the test gives it up", soon());
        expect_all(7);  // not one bucket was whole
        EXPECT_FALSE(target_.refusing());
    }
    proxy_->misbehave(Mischief::none, 0);
    push(*engine, 3, 9, soon());
    expect_all(9);
}

TEST_F(SentAhead, WhatWasSentAheadIsWhatIsLoadedNext) {
    const auto engine = trainer();
    const auto all = checksums();
    engine->buckets().send_ahead(1, soon());
    EXPECT_THROW(engine->buckets().send_ahead(1, soon()), InvalidArgument);
    EXPECT_THROW(engine->buckets().send_ahead(4, soon()), InvalidArgument);
    engine->begin(1, soon());
    EXPECT_THROW(engine->buckets().load(0, std::span(all).subspan(0, 1), soon()), InvalidArgument);
    EXPECT_THROW(engine->buckets().load_delta(9, {}, soon()), InvalidArgument);
    engine->buckets().load(1, std::span(all).subspan(1, 1), soon());
    EXPECT_THROW(engine->buckets().send_ahead(2, soon()), InvalidArgument);
    engine->buckets().wait_loaded(1, soon());
}

class CommitAhead : public OverTcp {
  protected:
    // Asks for the commit before any bucket has been answered for.
    void ask(Engine& engine, std::int64_t version, int value, bool only_rank = true) {
        fill(value);
        const auto all = checksums();
        manifest_ = manifest_checksum(version, big(), plan_, all);
        engine.pause(soon());
        engine.begin(version, soon());
        for (int b = 0; b < 4; ++b)
            engine.buckets().load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), soon());
        engine.commit_ahead(version, manifest_, only_rank, soon());
    }
    ops::Checksum manifest_;
};

TEST_F(CommitAhead, AnEngineOfOneRankServesTheVersionWithTheAnswer) {
    const auto engine = trainer();
    ask(*engine, 1, 7);
    for (int b = 0; b < 4; ++b) engine->buckets().wait_loaded(b, soon());
    engine->commit(1, manifest_, soon());
    EXPECT_TRUE(target_.serves());
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    engine->resume(soon());
    push(*engine, 2, 8, soon());  // asks for the commit in its turn
    expect_all(8);
}

TEST_F(CommitAhead, WaitsForTheOtherRanks) {
    const auto engine = trainer();
    ask(*engine, 1, 7, false);
    for (int b = 0; b < 4; ++b) engine->buckets().wait_loaded(b, soon());
    engine->commit(1, manifest_, soon());
    EXPECT_TRUE(target_.held());
    engine->resume(soon());
    EXPECT_TRUE(target_.serves());
}

TEST_F(CommitAhead, NothingIsCommittedWhenABucketIsRefused) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::corrupt, 3'500'000);  // in the last one
    ask(*engine, 2, 8);
    EXPECT_THAT(error_of([&] {
                    for (int b = 0; b < 4; ++b) engine->buckets().wait_loaded(b, soon());
                }),
                HasSubstr("is corrupted"));
    engine->abort("the test gives it up", soon());
    EXPECT_TRUE(target_.refusing());
    EXPECT_EQ(target_.commits(), 1);
    proxy_->misbehave(Mischief::none, 0);
    ask(*engine, 3, 9);
    for (int b = 0; b < 4; ++b) engine->buckets().wait_loaded(b, soon());
    engine->commit(3, manifest_, soon());
    EXPECT_TRUE(target_.serves());
    expect_all(9);
}

class CommitAheadOfTwoRanks : public CommitAhead {
  protected:
    CommitAheadOfTwoRanks() { plan_.ranks = 2; }
};

TEST_F(CommitAheadOfTwoRanks, NoneOfThemServesWhatTheOtherMayLack) {
    const auto engine = trainer();
    ask(*engine, 1, 7);
    for (int b = 0; b < 4; ++b) engine->buckets().wait_loaded(b, soon());
    EXPECT_THAT(error_of([&] { engine->commit(1, manifest_, soon()); }),
                HasSubstr("before all 2 ranks have it"));
    EXPECT_TRUE(target_.refusing());
}

}  // namespace
}  // namespace tandem::engine
