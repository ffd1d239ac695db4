#include "tests/contract/transport/contract.h"

namespace tandem::engine {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kLast = 64;  // the bucket with tensor "b"

TEST_P(TransportContract, ALoadedBucketLiesInTheWeightsAfterItsWait) {
    attach_and_open();
    for (const int bucket : {3, kLast}) {
        load(bucket);
        EXPECT_GE(transport_.wait_loaded(bucket, soon()), 0.0);
        expect_bucket(bucket);
    }
}

TEST_P(TransportContract, AnAnswerThatCameBeforeItsWaitIsKept) {
    attach_and_open();
    load(7);
    load(8);
    transport_.wait_loaded(8, soon());  // answers come in order
    EXPECT_GE(transport_.wait_loaded(7, soon()), 0.0);
    expect_bucket(7);
}

TEST_P(TransportContract, SeveralBucketsInFlight) {
    attach_and_open();
    constexpr int kDepth = 3;
    for (int n = 0; n <= kLast; ++n) {
        if (n >= kDepth) transport_.wait_loaded(n - kDepth, soon());
        load(n);
    }
    for (int n = kLast - kDepth + 1; n <= kLast; ++n) transport_.wait_loaded(n, soon());
    for (int n = 0; n <= kLast; ++n) expect_bucket(n);
}

TEST_P(TransportContract, BucketsMayBeSentAheadAndAreInTheWeightsOnceLoaded) {
    transport_.attach(regions_, plan_, soon());
    for (const int n : {2, 0, kLast}) transport_.send_ahead(n, soon());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (const int tensor : {0, 1}) {
        for (const std::byte byte : rig_->weights(tensor)) ASSERT_EQ(byte, std::byte{0});
    }
    rig_->open(2);
    for (const int n : {2, 0, kLast, 7}) load(n);
    for (const int n : {2, 0, kLast, 7}) transport_.wait_loaded(n, soon());
    for (const int n : {2, 0, kLast, 7}) expect_bucket(n);
}

TEST_P(TransportContract, WaitsMayComeInAnyOrder) {
    attach_and_open();
    for (const int n : {0, 1, 2}) load(n);
    for (const int n : {2, 0, 1}) transport_.wait_loaded(n, soon());
    for (const int n : {0, 1, 2}) expect_bucket(n);
}

TEST_P(TransportContract, AValueIsCastOnTheWay) {
    for (Transfer& t : plan_.transfers) {
        if (t.tensor != 1) continue;
        t.from_dtype = DType::bfloat16;
        t.from_stride = 512;
    }
    attach_and_open();
    std::vector<ops::Checksum> checksums;
    std::vector<std::vector<float>> rows;
    for (std::size_t i = 64; i < 68; ++i) {
        const auto bytes = bytes_of(plan_.transfers[i]);
        auto& values = rows.emplace_back();
        for (std::size_t at = 0; at < bytes.size(); at += 2) {
            bfloat16 value;
            std::memcpy(&value.bits, bytes.data() + at, 2);
            values.push_back(static_cast<float>(value));
        }
        checksums.push_back(
            ops::checksum({reinterpret_cast<const std::byte*>(values.data()), values.size() * 4}));
    }
    transport_.load(kLast, checksums, soon());
    transport_.wait_loaded(kLast, soon());
    const std::vector<std::byte> weights = rig_->weights(1);
    for (std::size_t i = 0; i < 4; ++i) {
        const Transfer& t = plan_.transfers[64 + i];
        for (std::size_t r = 0; r < t.rows; ++r) {
            ASSERT_EQ(std::memcmp(weights.data() + t.to + r * t.to_stride, rows[i].data() + r * 256, 1024), 0)
                << "piece " << i << ", row " << r;
        }
    }
}

TEST_P(TransportContract, ChangesLieInTheWeightsAfterTheirWaitOrAreRefused) {
    attach_and_open();
    if (!GetParam().takes_changes) {
        const std::vector<DeltaEntry> entries{{5, 3, plan_.transfers[5].from, 64, {}}};
        transport_.load_delta(1000, entries, soon());
        EXPECT_THROW(transport_.wait_loaded(1000, soon()), InvalidArgument);
        rig_->open(3);  // and it goes on
        load(5);
        transport_.wait_loaded(5, soon());
        expect_bucket(5);
        return;
    }
    // Transfer 5, all its elements (codec dense); transfer 64 stays as it is (codec none).
    const Transfer& t = plan_.transfers[5];
    const auto bytes = bytes_of(t);
    const std::vector<DeltaEntry> entries{
        {5, 3, t.from, bytes.size(), ops::checksum({bytes.data(), bytes.size()})},
        {64, 0, 0, 0, ops::checksum({})}};
    transport_.load_delta(1000, entries, soon());
    EXPECT_GE(transport_.wait_loaded(1000, soon()), 0.0);
    expect_transfer(t);
    EXPECT_EQ(rig_->weights(0)[plan_.transfers[6].to], std::byte{0});
    std::vector<DeltaEntry> wrong{{{7, 3, 0, bytes.size(), {}}}};
    transport_.load_delta(3, wrong, soon());
    try {
        transport_.wait_loaded(3, soon());
        FAIL() << "corrupted changes passed";
    } catch (const ProtocolError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("bucket 3"), HasSubstr("'a'"), HasSubstr("rank 5")));
    }
    transport_.forget_in_flight();
}

TEST_P(TransportContract, AWrongChecksumIsAProtocolErrorThatNamesTensorRankAndBucket) {
    attach_and_open();
    const auto checksums = checksums_of(kLast);
    const Transfer& t = plan_.transfers[66];
    flip(1, t.from + t.from_stride * 255 + 1023);  // its last byte
    transport_.load(kLast, checksums, soon());
    try {
        transport_.wait_loaded(kLast, soon());
        FAIL() << "a corrupted bucket passed";
    } catch (const ProtocolError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("bucket 64"), HasSubstr("'b'"), HasSubstr("rank 2")));
    }
    transport_.forget_in_flight();
}

TEST_P(TransportContract, AFailedBucketCanBeForgotten) {
    attach_and_open();
    auto checksums = checksums_of(2);
    checksums[0].low ^= 1;
    transport_.load(2, checksums, soon());
    load(3);
    EXPECT_THROW(transport_.wait_loaded(3, soon()), Error);  // the version was aborted
    transport_.forget_in_flight();
    EXPECT_THROW(transport_.wait_loaded(2, soon()), InvalidArgument);
    rig_->open(3);
    load(2);
    transport_.wait_loaded(2, soon());
    expect_bucket(2);
}

TEST_P(TransportContract, APlanThatMissesAByteNamesItsTensor) {
    plan_.transfers[67].rows = 255;
    try {
        transport_.attach(regions_, plan_, soon());
        FAIL() << "a plan with a hole passed";
    } catch (const ProtocolError& error) {
        EXPECT_THAT(error.what(), HasSubstr("1047552 of the 1048576 bytes of tensor 'b'"));
    }
    plan_ = plan();
    attach_and_open();  // the next one counts
    load(kLast);
    transport_.wait_loaded(kLast, soon());
    expect_bucket(kLast);
}

TEST_P(TransportContract, MisuseIsRefusedHere) {
    EXPECT_THROW(transport_.load(0, {}, soon()), InvalidArgument);  // nothing is attached
    attach_and_open();
    EXPECT_THROW(transport_.load(65, {}, soon()), InvalidArgument);
    EXPECT_THROW(transport_.load(-1, {}, soon()), InvalidArgument);
    EXPECT_THROW(transport_.load(0, {}, soon()), InvalidArgument);
    EXPECT_THROW(transport_.load(0, checksums_of(kLast), soon()), InvalidArgument);
    EXPECT_THROW(transport_.wait_loaded(3, soon()), InvalidArgument);
    load(1);
    EXPECT_THROW(load(1), InvalidArgument);
    EXPECT_THROW(transport_.load_delta(1, {}, soon()), InvalidArgument);
    EXPECT_THROW(transport_.attach(regions_, plan_, soon()), InvalidArgument);
    transport_.wait_loaded(1, soon());
}

TEST_P(TransportContract, AnEngineThatIsGoneIsATransportErrorThatNamesIt) {
    attach_and_open();
    rig_->stop_engine();
    try {
        load(0);
        transport_.wait_loaded(0, soon());
        FAIL() << "nobody answered, and that was well";
    } catch (const TransportError& error) {
        EXPECT_EQ(error.peer(), transport_.peer());
        EXPECT_EQ(error.phase(), "load bucket 0");
    }
}

}  // namespace tandem::engine
