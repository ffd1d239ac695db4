// The data plane over TCP when the network does its worst: each failure is named within its deadline, nothing is loaded
// that differs, and the next push succeeds.

#include "tests/contract/transport/tcp_rig.h"

namespace tandem::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class TcpFaults : public OverTcp {};

TEST_F(TcpFaults, ABitThatFlipsOnTheWayIsRefusedByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::corrupt, 2'500'000);
    EXPECT_THAT(error_of([&] { push(*engine, 2, 8, soon()); }),
                AllOf(HasSubstr("'big'"), HasSubstr("rank 3"), HasSubstr("is corrupted")));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, AConnectionThatBreaksEndsThePushAndTheNextOneSucceeds) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::cut, 2'500'000);
    const auto start = std::chrono::steady_clock::now();
    const std::string why = error_of([&] { push(*engine, 2, 8, Deadline::after_ms(20'000)); });
    EXPECT_THAT(why,
                AllOf(HasSubstr("load bucket "), HasSubstr(engine->peer()), HasSubstr("data connection")));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, ALinkThatCarriesNothingEndsWithinTheDeadlineByName) {
    const auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::stall, 2'500'000);
    const auto start = std::chrono::steady_clock::now();
    const std::string why = error_of([&] { push(*engine, 2, 8, Deadline::after_ms(700)); });
    EXPECT_THAT(why, AllOf(HasSubstr("load bucket "), HasSubstr(engine->peer())));
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    intact_or_refusing_and_healed(*engine, 9);
}

TEST_F(TcpFaults, AnAbortInTheMiddleLeavesConnectionsOfNoUseAndMakesNewOnes) {
    const auto engine = trainer(3);
    push(*engine, 1, 7, soon());
    EXPECT_EQ(proxy_->accepted(), 3);
    proxy_->misbehave(Mischief::stall, 500'000);
    fill(8);
    const auto all = checksums();
    engine->begin(2, soon());
    engine->buckets().load(0, std::span(all).subspan(0, 1), soon());
    engine->abort("another rank failed", soon());
    EXPECT_FALSE(target_.refusing());  // nothing was written
    EXPECT_EQ(target_.version(), 1);
    expect_all(7);
    proxy_->misbehave(Mischief::none, 0);
    push(*engine, 3, 9, soon());
    expect_all(9);
    EXPECT_EQ(proxy_->accepted(), 6);
}

TEST_F(TcpFaults, ATrainerThatGoesLeavesTheEngineToTheNext) {
    auto engine = trainer();
    push(*engine, 1, 7, soon());
    proxy_->misbehave(Mischief::stall, 1'500'000);
    fill(8);
    const auto all = checksums();
    engine->begin(2, soon());
    for (int b = 0; b < 4; ++b)
        engine->buckets().load(b, std::span(all).subspan(static_cast<std::size_t>(b), 1), soon());
    engine.reset();
    wait_until_idle();
    proxy_->misbehave(Mischief::none, 0);
    push(*trainer(), 5, 6, soon());
    expect_all(6);
}

TEST_F(TcpFaults, RegionsThatAreNotHereAreRefused) {
    const auto engine = trainer();
    EXPECT_THAT(error_of([&] {
                    engine->attach({{{nullptr, memory_.size()}, -1, {DeviceType::cuda, 0}}}, plan_, soon());
                }),
                HasSubstr("TCP carries host memory"));
    EXPECT_FALSE(engine->capabilities().alias);
    EXPECT_TRUE(engine->capabilities().remote);
}

}  // namespace
}  // namespace tandem::engine
