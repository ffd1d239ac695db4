#include "tests/contract/transport/contract.h"

namespace tandem::engine {

TEST_P(TransportContract, APostedBucketLiesInTheWeightsAfterItsWait) {
    transport_.post({0, 1, {fill("a", 100, 5000, 1, 0, 3), fill("b", 0, 77, 1, 8192, 4)}}, soon());
    EXPECT_GE(transport_.wait(0, soon()), 0.0);
    expect(0, 100, 5000, 3);
    expect(1, 0, 77, 4);
}

TEST_P(TransportContract, PollTurnsDoneAndWaitStillAnswers) {
    transport_.post({7, 0, {fill("a", 0, 100, 0, 0, 1)}}, soon());
    for (int i = 0; i < 2000 && transport_.poll(7) == Poll::pending; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(transport_.poll(7), Poll::done);
    transport_.wait(7, soon());
    expect(0, 0, 100, 1);
}

TEST_P(TransportContract, SeveralBucketsInFlightAndSlotsUsedAgain) {
    constexpr int kBuckets = 60;
    constexpr std::size_t kBytes = 16 << 10;
    for (int n = 0; n < kBuckets; ++n) {
        if (n >= TransportRig::kSlots) transport_.wait(n - TransportRig::kSlots, soon());
        transport_.post(
            {n,
             n % TransportRig::kSlots,
             {fill("a", static_cast<std::size_t>(n) * kBytes, kBytes, n % TransportRig::kSlots, 64, n)}},
            soon());
    }
    for (int n = kBuckets - TransportRig::kSlots; n < kBuckets; ++n) transport_.wait(n, soon());
    for (int n = 0; n < kBuckets; ++n) expect(0, static_cast<std::size_t>(n) * kBytes, kBytes, n);
}

TEST_P(TransportContract, WaitsMayComeInAnyOrder) {
    for (int n = 0; n < 3; ++n)
        transport_.post({n, n, {fill("b", static_cast<std::size_t>(n) * 1000, 1000, n, 0, n)}}, soon());
    for (const int n : {2, 0, 1}) transport_.wait(n, soon());
    for (int n = 0; n < 3; ++n) expect(1, static_cast<std::size_t>(n) * 1000, 1000, n);
}

TEST_P(TransportContract, AWrongChecksumIsAProtocolErrorThatNamesTensorRankAndBucket) {
    BucketEntry entry = fill("b", 0, 1000, 0, 0, 1);
    entry.source_rank = 5;
    rig_->staging().slot(0).data[999] ^= std::byte{1};
    transport_.post({4, 0, {entry}}, soon());
    try {
        transport_.wait(4, soon());
        FAIL() << "a corrupted bucket passed";
    } catch (const ProtocolError& error) {
        EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("bucket 4"), testing::HasSubstr("'b'"),
                                                 testing::HasSubstr("rank 5")));
    }
    transport_.release();
}

TEST_P(TransportContract, MisuseIsRefusedHere) {
    EXPECT_THROW(transport_.post({0, 0, {{"unknown", 0, 0, 8, {}, 0}}}, soon()), InvalidArgument);
    EXPECT_THROW(transport_.wait(3, soon()), InvalidArgument);
    EXPECT_THROW(transport_.poll(3), InvalidArgument);
    transport_.post({1, 0, {fill("a", 0, 8, 0, 0, 1)}}, soon());
    EXPECT_THROW(transport_.post({1, 1, {fill("a", 8, 8, 1, 0, 1)}}, soon()), InvalidArgument);
    transport_.wait(1, soon());
}

TEST_P(TransportContract, AnEngineThatIsGoneIsATransportErrorThatNamesIt) {
    rig_->stop_engine();
    try {
        transport_.post({0, 0, {fill("a", 0, 8, 0, 0, 1)}}, soon());
        transport_.wait(0, soon());
        FAIL() << "nobody answered, and that was well";
    } catch (const TransportError& error) {
        EXPECT_EQ(error.peer(), transport_.peer());
        EXPECT_EQ(error.phase(), "load bucket 0");
    }
}

}  // namespace tandem::engine
