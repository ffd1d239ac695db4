// Versions that the engine reads where the trainer put them.
#include <algorithm>
#include <utility>

#include "common/tensor/dtype.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

// Two versions fit into the arena, half of it apart, each laid out as the engine's tensors.
class AdoptTest : public ReceiverRig {
  protected:
    static constexpr std::size_t kShift = kRegion / 2;
    AdoptTest() { plan_ = whole(); }
    static TransferPlan whole() {
        return {{{0, 1, 0, DType::float32, 1, 40, 64, 0, 0, 0},
                 {0, 2, 0, DType::float32, 3, 8, 224, 32, 160, 32},
                 {1, 3, 0, DType::bfloat16, 1, 50, 512, 0, 0, 0}},
                {0, 3}};
    }
    std::vector<ops::Checksum> fill(std::size_t shift, int value) {
        std::memset(arena_.data() + shift, value, kShift);
        std::vector<ops::Checksum> all;
        for (Transfer t : plan_.transfers) {
            t.from += shift;
            all.push_back(checksum_of(t));
        }
        return all;
    }
    void adopt(Engine& engine, std::int64_t version, std::size_t shift, int value) {
        const auto all = fill(shift, value);
        engine.begin(version, soon());
        engine.adopt(shift, all, soon());
        engine.commit(version, manifest(version, all), soon());
    }
    bool reads_its_own() const {
        return target_.reading(0).data == target_.weights()[0].memory.data &&
               target_.reading(1).data == target_.weights()[1].memory.data;
    }
    void expect_own_memory(int value) const {
        for (const WeightSlot& weight : target_.weights()) {
            for (std::size_t i = 0; i < weight.memory.bytes; ++i)
                ASSERT_EQ(std::to_integer<int>(weight.memory.data[i]), value);
        }
    }
};

// A trainer that did not hear of its commit takes that half for free, and may live although the connection is gone.
TEST_F(AdoptTest, WhatWasCommittedAndNotResumedIsRefusedOnceTheConnectionIsGone) {
    {
        const auto engine = connect();
        engine->pause(soon());
        adopt(*engine, 1, 0, 0x31);
    }
    for (int i = 0; i < 1000 && target_.held(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(target_.refusing());
    EXPECT_THAT(target_.reason(), HasSubstr("publish a version"));
    adopt(*connect_again(), 2, kShift, 0x32);
    EXPECT_TRUE(target_.serves());
}

TEST_F(AdoptTest, TheEngineReadsTheTrainersMemoryAndNothingMoves) {
    const auto engine = connect();
    adopt(*engine, 1, 0, 0x31);
    EXPECT_EQ(target_.version(), 1);
    expect_weights(0x31);
    expect_own_memory(0xee);
    EXPECT_FALSE(reads_its_own());
    EXPECT_EQ(engine->checksums(soon())[0], ops::checksum(target_.reading(0)));
    adopt(*engine, 2, kShift, 0x32);
    expect_weights(0x32);
    // The bytes that are there now: a trainer that writes where the engine reads is detected.
    arena_.data()[kShift + 64] ^= std::byte{1};
    EXPECT_NE(engine->checksums(soon())[0], checksum_of(whole().transfers[0]));
    EXPECT_EQ(engine->checksums(soon())[0], ops::checksum(target_.reading(0)));
    // Nothing of the engine's own to change.
    EXPECT_EQ(engine->held(soon()).version, 2);
    EXPECT_EQ(engine->held(soon()).manifest, ops::Checksum{});
    engine->begin(3, soon());
    engine->buckets().load_delta(0, std::vector{DeltaEntry{}}, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->buckets().wait_loaded(0, soon()); }),
                HasSubstr("reads its weights in a trainer's memory"));
    engine->begin(3, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->verify(fill(0, 1), soon()); }),
                HasSubstr("reads its weights in a trainer's memory"));
    EXPECT_FALSE(target_.refusing());
}

TEST_F(AdoptTest, AnAbortLeavesTheOldVersionWhereItWas) {
    const auto engine = connect();
    adopt(*engine, 1, 0, 0x31);
    const auto all = fill(kShift, 0x32);
    engine->begin(2, soon());
    engine->adopt(kShift, all, soon());
    engine->abort("changed my mind", soon());
    expect_weights(0x31);
    EXPECT_FALSE(target_.refusing());
    engine->begin(3, soon());
    engine->adopt(kShift, all, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(3, manifest(4, all), soon()); }),
                HasSubstr("the manifest of version 3"));
    expect_weights(0x31);
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(target_.version(), 1);
}

TEST_F(AdoptTest, TheMemoryStaysMappedAfterTheTrainerAndIsNeverWritten) {
    auto engine = connect();
    adopt(*engine, 1, 0, 0x31);
    engine.reset();
    const SharedArena old = std::exchange(arena_, SharedArena::create("next", kRegion));
    engine = connect_again();  // another trainer, another region
    expect_weights(0x31);
    EXPECT_EQ(target_.version(), 1);
    stage(0x32);
    const auto all = checksums();
    engine->begin(2, soon());
    EXPECT_FALSE(reads_its_own());
    load(*engine, 0, all);
    engine->buckets().wait_loaded(0, soon());
    EXPECT_TRUE(reads_its_own());
    engine->commit(2, manifest(2, all), soon());
    expect_weights(0x32);
    EXPECT_TRUE(
        std::all_of(old.data(), old.data() + kShift, [](std::byte b) { return b == std::byte{0x31}; }));
    EXPECT_EQ(engine->held(soon()).manifest, manifest(2, all));
    adopt(*engine, 3, kShift, 0x33);
    expect_weights(0x33);
    receiver_.reset();
    expect_weights(0x33);  // the engine's, as long as it reads there
}

TEST_F(AdoptTest, ABucketThatFailsAfterAnAdoptedVersionLeavesTheEngineRefusing) {
    const auto engine = connect();
    adopt(*engine, 1, 0, 0x31);
    engine->begin(2, soon());
    load(*engine, 0, std::vector<ops::Checksum>(3));
    EXPECT_THROW(engine->buckets().wait_loaded(0, soon()), ProtocolError);
    EXPECT_TRUE(target_.refusing());
    adopt(*engine, 3, kShift, 0x33);
    EXPECT_FALSE(target_.refusing());
    expect_weights(0x33);
}

TEST_F(AdoptTest, WhatDoesNotLieInOnePieceIsNamed) {
    const auto engine = connect();
    const auto refused = [&](auto change, std::uint64_t shift = 0) {
        static std::int64_t version = 10;
        plan_ = whole();
        change(plan_.transfers);
        engine->attach(regions(), plan_, soon());
        engine->begin(++version, soon());
        return message_of<ProtocolError>([&] { engine->adopt(shift, checksums(), soon()); });
    };
    const auto as_it_is = [](std::vector<Transfer>&) {};
    EXPECT_THAT(refused([](auto& t) { t[1].from += 4; }),
                HasSubstr("tensor 'a' bytes [160, 256) from rank 2 does not lie in one piece"));
    EXPECT_THAT(refused([](auto& t) { t[1].from_stride = 36; }),
                HasSubstr("tensor 'a' bytes [160, 256) from rank 2"));
    EXPECT_THAT(refused([](auto& t) { t[2].from_dtype = DType::float32; }),
                HasSubstr("tensor 'b' bytes [0, 100) from rank 3"));
    EXPECT_THAT(refused(as_it_is, kRegion - 64 - 252),
                HasSubstr("tensor 'a' of 256 bytes does not lie at 64 + 7876"));
    EXPECT_THAT(refused(as_it_is, kRegion - 512 - 98), HasSubstr("tensor 'a'"));
    EXPECT_THAT(refused(as_it_is, 2), HasSubstr("tensor 'a' of 256 bytes does not lie at 64 + 2"));
    EXPECT_THAT(refused(as_it_is, 1u << 30), HasSubstr("does not lie at"));
    EXPECT_EQ(refused(as_it_is, kRegion - 512 - 100), "no such error");
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->adopt(0, checksums(), soon()); }),
                HasSubstr("adopt after parts of version"));
    engine->begin(90, soon());
    load(*engine, 0, checksums());
    engine->buckets().wait_loaded(0, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->adopt(0, checksums(), soon()); }),
                HasSubstr("adopt after parts of version 90 were loaded"));
    EXPECT_THROW(engine->adopt(0, std::vector(2, ops::Checksum{}), soon()), InvalidArgument);
}

class CannotAlias : public ReceiverRig {
  protected:
    CannotAlias() : ReceiverRig({}, false) {}
};

TEST_F(CannotAlias, SaysSoBeforeAndWhenAsked) {
    const auto engine = connect();
    EXPECT_FALSE(engine->capabilities().alias);
    engine->begin(1, soon());
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->adopt(0, checksums(), soon()); }),
                HasSubstr("this engine cannot read weights in place"));
    push(*engine, 2, 2);
    expect_weights(2);
}

}  // namespace
}  // namespace tandem::engine
