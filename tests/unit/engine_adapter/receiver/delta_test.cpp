// Versions that come as changes against the one that the engine holds.
#include <utility>

#include "common/tensor/dtype.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

// "a" in two strided halves of its columns.
class DeltaTest : public ReceiverRig {
  protected:
    DeltaTest() {
        plan_ = {{{0, 1, 0, DType::float32, 4, 8, 0, 64, 0, 64},
                  {0, 2, 0, DType::float32, 4, 8, 32, 64, 32, 64},
                  {1, 3, 0, DType::bfloat16, 1, 50, 512, 0, 0, 0}},
                 {0, 3}};
    }
    // Writes an encoding to the region and describes it truly.
    DeltaEntry put(std::uint32_t transfer, std::uint32_t codec, const std::vector<std::byte>& encoding) {
        std::memcpy(arena_.data() + next_, encoding.data(), encoding.size());
        const DeltaEntry entry{transfer, codec, next_, encoding.size(),
                               ops::checksum({encoding.data(), encoding.size()})};
        next_ += encoding.size() + 5;  // anywhere
        return entry;
    }
    template <typename T>
    static std::vector<std::byte> bytes_of(const std::vector<T>& values) {
        std::vector<std::byte> bytes(values.size() * sizeof(T));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }
    // One changed element: codec gaps.
    template <typename T>
    static std::vector<std::byte> one_change(std::uint8_t gap, T value) {
        std::vector<std::byte> bytes = bytes_of(std::vector<std::uint32_t>{1});
        for (const std::byte byte : bytes_of(std::vector<T>{value})) bytes.push_back(byte);
        bytes.push_back(std::byte{gap});
        return bytes;
    }
    template <typename T>
    T& staged(std::size_t offset) {
        return *reinterpret_cast<T*>(arena_.data() + offset);
    }
    void send(Engine& engine, int number, const std::vector<DeltaEntry>& entries) {
        engine.buckets().load_delta(number, entries, soon());
        engine.buckets().wait_loaded(number, soon());
    }
    std::string refused(Engine& engine, std::int64_t version, const DeltaEntry& entry) {
        engine.begin(version, soon());
        return message_of<ProtocolError>([&] { send(engine, 6, {entry}); });
    }
    // A version that is sent as changes of all elements.
    void push_dense_changes(Engine& engine, std::int64_t version, int value) {
        stage(value);
        const auto all = checksums();
        engine.begin(version, soon());
        for (std::uint32_t i = 0; i < plan_.transfers.size(); ++i) {
            const Transfer& t = plan_.transfers[i];
            const std::size_t bytes = t.rows * t.row_elements * dtype_size(t.from_dtype);
            send(engine, 0, {put(i, 3, std::vector<std::byte>(bytes, std::byte(value)))});
        }
        engine.verify(all, soon());
        engine.commit(version, manifest(version, all), soon());
    }
    std::size_t next_ = 1024;
};

TEST_F(DeltaTest, ChangesAreAppliedVerifiedAndCommitted) {
    const auto engine = connect();
    push(*engine, 1, 0x11);
    EXPECT_EQ(engine->held(soon()).manifest, manifest(1));
    // The trainer's next version: element (2, 3) of "a", and all of "b". Its right half stays.
    staged<float>(2 * 64 + 3 * 4) = 7.5f;
    for (std::size_t i = 0; i < 50; ++i) staged<bfloat16>(512 + 2 * i) = bfloat16(static_cast<float>(i));
    const auto all = checksums();
    engine->begin(2, soon());
    engine->buckets().load_delta(0, std::vector{put(0, 1, one_change(2 * 8 + 3, 7.5f))}, soon());
    engine->buckets().load_delta(
        41, std::vector{put(1, 0, {}), put(2, 3, bytes_of(values_at<bfloat16>(arena_.data() + 512, 50)))},
        soon());
    EXPECT_GE(engine->buckets().wait_loaded(41, soon()), 0.0);
    EXPECT_GE(engine->buckets().wait_loaded(0, soon()), 0.0);
    EXPECT_GE(engine->verify(all, soon()), 0.0);
    engine->commit(2, manifest(2, all), soon());
    EXPECT_EQ(target_.version(), 2);
    EXPECT_FALSE(target_.refusing());
    EXPECT_EQ(std::memcmp(target_.weights()[0].memory.data, arena_.data(), 256), 0);
    EXPECT_EQ(std::memcmp(target_.weights()[1].memory.data, arena_.data() + 512, 100), 0);
    EXPECT_EQ(engine->held(soon()).version, 2);
    EXPECT_EQ(engine->held(soon()).manifest, manifest(2, all));

    // Nothing changed: nothing is sent, and that too is verified.
    engine->begin(3, soon());
    engine->verify(all, soon());
    engine->commit(3, manifest(3, all), soon());
    EXPECT_EQ(target_.version(), 3);
}

TEST_F(DeltaTest, AnEncodingLargerThanWhatItChangesIsRefused) {
    const auto engine = connect();
    push(*engine, 1, 0x11);
    engine->begin(2, soon());
    const DeltaEntry entry = put(2, 1, std::vector<std::byte>(2 * 100 + 65));
    EXPECT_THAT(message_of<ProtocolError>([&] { send(*engine, 0, {entry}); }),
                HasSubstr("is changed by 265 bytes, and has only 100"));
}

TEST_F(DeltaTest, WithoutVerifyThereIsNoCommit) {
    const auto engine = connect();
    push(*engine, 1, 0x11);
    engine->begin(2, soon());
    send(*engine, 0, {put(2, 1, one_change(0, bfloat16(3.0f)))});
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->commit(2, manifest(2), soon()); }),
                HasSubstr("what came was not verified"));
    EXPECT_TRUE(target_.refusing());
    EXPECT_EQ(engine->held(soon()).version, 0);
    // The rest is no base for changes; a whole version heals it.
    EXPECT_THAT(refused(*engine, 3, put(2, 0, {})), HasSubstr("holds no whole version"));
    push(*engine, 4, 0x22);
    EXPECT_FALSE(target_.refusing());
    expect_weights(0x22);
}

TEST_F(DeltaTest, AnEngineWithoutAVersionTakesOnlyAllElementsAnew) {
    const auto engine = connect();
    EXPECT_EQ(engine->held(soon()).version, 0);
    EXPECT_THAT(refused(*engine, 1, put(2, 0, {})), HasSubstr("holds no whole version"));
    EXPECT_THAT(refused(*engine, 1, put(2, 1, one_change(0, bfloat16(1.0f)))),
                HasSubstr("holds no whole version"));
    EXPECT_FALSE(target_.refusing());
    push_dense_changes(*engine, 2, 0x23);
    expect_weights(0x23);
    EXPECT_EQ(engine->held(soon()).version, 2);
}

// Even one that reads its weights in place: it goes back to its own memory, which is overwritten.
TEST_F(DeltaTest, AllElementsAnewReplaceWeightsInPlace) {
    plan_.transfers[0] = {0, 1, 0, DType::float32, 1, 64, 0, 0, 0, 0};
    plan_.transfers.erase(plan_.transfers.begin() + 1);
    plan_.first = {0, 2};
    const auto engine = connect();
    stage(0x21);
    const auto all = checksums();
    engine->begin(1, soon());
    engine->adopt(0, all, soon());
    engine->commit(1, manifest(1, all), soon());
    EXPECT_NE(target_.reading(0).data, target_.weights()[0].memory.data);
    push_dense_changes(*engine, 2, 0x22);
    EXPECT_EQ(target_.reading(0).data, target_.weights()[0].memory.data);
    expect_weights(0x22);
}

TEST_F(DeltaTest, WhatIsCorruptedOrUnfitIsNamedAndLeavesNoTrace) {
    const auto engine = connect();
    push(*engine, 1, 0x11);
    const DeltaEntry good = put(1, 1, one_change(9, 1.0f));
    const auto with = [&](auto change) {
        static std::int64_t version = 10;
        DeltaEntry entry = good;
        change(entry);
        return refused(*engine, ++version, entry);
    };
    arena_.data()[good.offset + 4] ^= std::byte{0x10};
    EXPECT_THAT(with([](DeltaEntry&) {}),
                HasSubstr("bucket 6: tensor 'a' bytes [32, 256) from rank 2 is corrupted"));
    arena_.data()[good.offset + 4] ^= std::byte{0x10};
    EXPECT_THAT(with([](DeltaEntry& e) { e.checksum.low ^= 1; }), HasSubstr("is corrupted"));
    EXPECT_THAT(with([](DeltaEntry& e) { e.transfer = 3; }),
                HasSubstr("bucket 6: changes of transfer 3 of 3"));
    EXPECT_THAT(with([](DeltaEntry& e) { e.codec = 4; }),
                HasSubstr("tensor 'a' bytes [32, 256) from rank 2 is changed by codec number 4"));
    EXPECT_THAT(with([](DeltaEntry& e) { e.offset = kRegion - 1; }), HasSubstr("not inside the 8192 bytes"));
    EXPECT_THAT(with([](DeltaEntry& e) { e.offset = ~std::uint64_t{0}; }), HasSubstr("not inside"));
    EXPECT_THAT(with([](DeltaEntry& e) { e.bytes = ~std::uint64_t{0}; }), HasSubstr("not inside"));
    EXPECT_FALSE(target_.refusing());
    expect_weights(0x11);
    EXPECT_EQ(engine->held(soon()).version, 1);
    // A true checksum of an encoding that makes no sense: what it says of the tensor's 32 elements is found
    // out.
    const std::vector<std::pair<std::uint32_t, std::vector<std::byte>>> nonsense{
        {1, one_change(32, 1.0f)},
        {1, std::vector<std::byte>(3)},
        {3, std::vector<std::byte>(124)},
        {2, std::vector<std::byte>(5, std::byte{255})},
        {0, std::vector<std::byte>(1)}};
    std::int64_t whole = 1;
    for (const auto& [codec, encoding] : nonsense) {
        const DeltaEntry wrong = put(1, codec, encoding);
        EXPECT_THAT(with([&](DeltaEntry& e) { e = wrong; }),
                    HasSubstr("bucket 6: tensor 'a' bytes [32, 256) from rank 2: "));
        EXPECT_TRUE(target_.refusing());  // others of the bucket may have been applied
        push(*engine, ++whole, 0x11);
    }
    engine->begin(30, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] {
                    send(*engine, 0, {good, good});
                }),
                HasSubstr("changes twice"));
    EXPECT_FALSE(target_.refusing());
}

TEST_F(DeltaTest, VerifyNamesTheTensorThatDiffersAndItsRank) {
    const auto engine = connect();
    push(*engine, 1, 0x11);
    auto all = checksums();
    all[1].high ^= 1;
    engine->begin(2, soon());
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->verify(all, soon()); }),
                HasSubstr("tensor 'a' bytes [32, 256) from rank 2 differs"));
    EXPECT_FALSE(target_.refusing());  // nothing had been written
    engine->begin(3, soon());
    send(*engine, 0, {put(2, 1, one_change(0, bfloat16(3.0f)))});
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->verify(checksums(), soon()); }),
                HasSubstr("tensor 'b' bytes [0, 100) from rank 3 differs"));
    EXPECT_TRUE(target_.refusing());
    EXPECT_THROW(engine->verify(std::vector(2, ops::Checksum{}), soon()), InvalidArgument);
}

}  // namespace
}  // namespace tandem::engine
