// Versions pulled with strides and casts out of several regions, and plans of very many transfers.
#include <random>

#include "common/tensor/dtype.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

class DirectTest : public ReceiverRig {};

// "a" comes as two halves of its columns, bfloat16, from two regions; "b" from a float32 matrix of which
// every other element is not its own.
TEST_F(DirectTest, StridedPiecesOfTwoRegionsAreCastOnTheWay) {
    const SharedArena second = SharedArena::create("second", 4096);
    std::mt19937 random(1);
    for (std::size_t i = 0; i < kRegion / 2; ++i)
        reinterpret_cast<bfloat16*>(arena_.data())[i] =
            bfloat16(static_cast<float>(random() % 2000) - 1000.0f);
    for (std::size_t i = 0; i < 1024; ++i)
        reinterpret_cast<float*>(second.data())[i] = static_cast<float>(random()) / 1e6f;
    auto* in_second = reinterpret_cast<bfloat16*>(second.data() + 2048);
    for (std::size_t i = 0; i < 1024; ++i) in_second[i] = bfloat16(static_cast<float>(random() % 977));
    plan_ = {{{0, 0, 0, DType::bfloat16, 4, 8, 100, 48, 0, 64},
              {0, 1, 1, DType::bfloat16, 4, 8, 2048, 16, 32, 64},
              {1, 2, 1, DType::float32, 25, 2, 8, 16, 0, 4}},
             {0, 1, 3}};
    std::vector<float> a(64);
    for (std::size_t r = 0; r < 4; ++r) {
        for (std::size_t c = 0; c < 8; ++c) {
            a[r * 16 + c] = static_cast<float>(values_at<bfloat16>(arena_.data() + 100 + r * 48, 8)[c]);
            a[r * 16 + 8 + c] = static_cast<float>(in_second[r * 8 + c]);
        }
    }
    std::vector<bfloat16> b(50);
    for (std::size_t i = 0; i < 50; ++i)
        b[i] = bfloat16(values_at<float>(second.data() + 8 + i / 2 * 16, 2)[i % 2]);
    const auto half_of_a = [&](std::size_t first) {
        std::vector<float> half;
        for (std::size_t r = 0; r < 4; ++r) {
            const auto row = a.begin() + static_cast<std::ptrdiff_t>(r * 16 + first);
            half.insert(half.end(), row, row + 8);
        }
        return ops::checksum({reinterpret_cast<const std::byte*>(half.data()), 128});
    };
    const std::vector<ops::Checksum> all{half_of_a(0), half_of_a(8),
                                         ops::checksum({reinterpret_cast<const std::byte*>(b.data()), 100})};

    const auto engine = engine::connect(receiver_->address(), soon());
    engine->attach({{arena_.span(), arena_.fd()}, {second.span(), second.fd()}}, plan_, soon());
    engine->begin(1, soon());
    for (const int bucket : {1, 0}) load(*engine, bucket, all);
    for (const int bucket : {1, 0}) engine->buckets().wait_loaded(bucket, soon());
    engine->commit(1, manifest(1, all), soon());
    EXPECT_EQ(values_at<float>(target_.weights()[0].memory.data, 64), a);
    EXPECT_EQ(values_at<bfloat16>(target_.weights()[1].memory.data, 50), b);
}

TEST_F(DirectTest, ARegionThatCannotBeMappedSoLargeLeavesNothingBehind) {
    const auto engine = engine::connect(receiver_->address(), soon());
    std::vector<Region> two{{arena_.span(), arena_.fd()}, {arena_.span(), arena_.fd()}};
    two[1].memory.bytes = kRegion * 2;
    EXPECT_THROW(engine->attach(two, plan_, soon()), InvalidArgument);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->begin(1, soon()); }), HasSubstr("before attach"));
}

TEST(LargePlan, AHundredThousandTransfersAreAttachedAndLoaded) {
    // Much work, where a sanitizer watches it.
    const auto in_time = [] { return Deadline::after_ms(60'000); };
    constexpr std::size_t kPiece = 16;
    constexpr std::size_t kTransfers = 100'000;
    constexpr std::size_t kBuckets = 100;
    TestTarget target({{"x", {static_cast<std::int64_t>(kTransfers * kPiece)}, DType::uint8}});
    const Receiver receiver(target, {.copy_threads = 2});
    const SharedArena arena = SharedArena::create("large plan", kTransfers * kPiece);
    TransferPlan plan;
    std::vector<ops::Checksum> all;
    for (std::size_t i = 0; i < kTransfers; ++i) {
        // Reversed, so that nothing is in its place by luck.
        plan.transfers.push_back(
            {0, 0, 0, DType::uint8, 1, kPiece, (kTransfers - 1 - i) * kPiece, 0, i * kPiece, 0});
        std::memcpy(arena.data() + i * kPiece, &i, sizeof(i));
        if ((i + 1) % (kTransfers / kBuckets) == 0) plan.first.push_back(i + 1);
    }
    for (const Transfer& t : plan.transfers) all.push_back(ops::checksum({arena.data() + t.from, kPiece}));
    const auto engine = engine::connect(receiver.address(), in_time());
    engine->attach({{arena.span(), arena.fd()}}, plan, in_time());
    engine->begin(1, in_time());
    const std::size_t each = kTransfers / kBuckets;
    for (std::size_t b = 0; b < kBuckets; ++b)
        engine->buckets().load(static_cast<int>(b), std::span(all).subspan(b * each, each), in_time());
    for (std::size_t b = 0; b < kBuckets; ++b) engine->buckets().wait_loaded(static_cast<int>(b), in_time());
    engine->commit(1, manifest_checksum(1, engine->capabilities().tensors, plan, all), in_time());
    for (std::size_t i = 0; i < kTransfers; ++i) {
        const std::byte* piece = target.weights()[0].memory.data + i * kPiece;
        ASSERT_EQ(values_at<std::size_t>(piece, 1)[0], kTransfers - 1 - i);
    }
}

}  // namespace
}  // namespace tandem::engine
