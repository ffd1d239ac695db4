// A trainer whose memory is written while the engine reads it, by a process of its own: a version is either
// exactly what its checksums say, in the engine's own memory, or refused. Not mode alias, where the engine
// reads the trainer's memory for as long as it serves the version.
#include <string>
#include <vector>

#include "common/ops/delta.h"
#include "tests/support/flipping_process.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

class HostileMemory : public ReceiverRig {
  protected:
    static constexpr int kPushes = 60, kMost = 20'000;
    static constexpr std::size_t kOut = 4096;  // where encodings lie

    HostileMemory() : ReceiverRig({.copy_threads = 1}) {}

    // The engine's own bytes, as a commit announced them.
    void expect_announced(const std::vector<ops::Checksum>& all) const {
        for (std::size_t i = 0; i < plan_.transfers.size(); ++i) {
            const Transfer& t = plan_.transfers[i];
            const TensorInfo& tensor = target_.weights()[t.tensor].info;
            ops::CopyItem item;
            const std::size_t row = t.row_elements * dtype_size(tensor.dtype);
            item.from = {target_.weights()[t.tensor].memory.data + t.to, row};
            item.to = {nullptr, row};
            item.rows = static_cast<std::int64_t>(t.rows);
            item.from_stride = t.to_stride;
            ASSERT_EQ(ops::copy_checksum(item), all[i]) << tensor.name;
        }
    }

    // Pushes again and again while the byte at `offset` is flipped. attempt(version): throws when it is
    // refused.
    void under_fire(std::size_t offset, const std::vector<ops::Checksum>& all,
                    const std::function<void(std::int64_t)>& attempt) {
        peer_.move_to(arena_.data() + offset);
        int committed = 0, refused = 0;
        for (int i = 0; i < kMost && (i < kPushes || committed == 0 || refused == 0); ++i) {
            try {
                attempt(++version_);
                ++committed;
                ASSERT_EQ(target_.version(), version_);
                ASSERT_NO_FATAL_FAILURE(expect_announced(all)) << "version " << version_;
            } catch (const ProtocolError&) {
                ++refused;
                ASSERT_NE(target_.version(), version_);
            }
        }
        peer_.stop();
        EXPECT_GT(committed, 0);
        EXPECT_GT(refused, 0);
    }

    std::int64_t version_ = 0;
    test::FlippingProcess peer_;
};

TEST_F(HostileMemory, BucketsAreWhatTheirChecksumsSayOrRefused) {
    // Whole lines, rows put together, rows that are not whole lines, a cast, and a short one.
    plan_ = {{{0, 0, 0, DType::float32, 1, 32, 0, 0, 0, 0},
              {0, 0, 0, DType::float32, 2, 10, 256, 64, 128, 64},
              {0, 0, 0, DType::float32, 2, 6, 512, 64, 168, 64},
              {1, 0, 0, DType::float32, 1, 40, 1024, 0, 0, 0},
              {1, 0, 0, DType::bfloat16, 1, 10, 2048, 0, 80, 0}},
             {0, 3, 5}};
    stage(0x11);
    const auto engine = connect();
    // What the engine will hold: also where it casts.
    std::vector<ops::Checksum> all = checksums();
    std::vector<float> values = values_at<float>(arena_.data() + 1024, 40);
    std::vector<bfloat16> cast(values.begin(), values.end());
    all[3] = ops::checksum({reinterpret_cast<const std::byte*>(cast.data()), 80});
    const auto push_once = [&](std::int64_t version) {
        try {
            engine->begin(version, soon());
            for (const int bucket : {0, 1}) load(*engine, bucket, all);
            for (const int bucket : {0, 1}) engine->buckets().wait_loaded(bucket, soon());
            engine->commit(version, manifest(version, all), soon());
        } catch (const ProtocolError&) {
            engine->abort("refused", soon());
            throw;
        }
    };
    for (const std::size_t offset : {std::size_t{5}, std::size_t{127}, std::size_t{290}, std::size_t{520},
                                     std::size_t{1027}, std::size_t{2060}})
        under_fire(offset, all, push_once);
}

TEST_F(HostileMemory, ChangesAreWhatVerifySaysOrRefused) {
    plan_ = {{{0, 0, 0, DType::float32, 1, 64, 0, 0, 0, 0}, {1, 0, 0, DType::bfloat16, 1, 50, 256, 0, 0, 0}},
             {0, 2}};
    const auto engine = connect();
    const std::vector<float> none(64, 1.0f);
    for (const std::size_t changed : {std::size_t{1}, std::size_t{20}, std::size_t{64}}) {
        std::vector<float> base = none, fresh = none;
        for (std::size_t i = 0; i < changed; ++i) fresh[i * 64 / changed] = 2.0f;
        const DeltaEntry entry = [&] {
            const ops::DeltaResult delta = ops::delta_encode(
                {reinterpret_cast<const std::byte*>(fresh.data()), 0, 1, 64, DType::float32, DType::float32},
                {reinterpret_cast<std::byte*>(base.data()), 256}, arena_.span().subspan(kOut, 256));
            return DeltaEntry{0, static_cast<std::uint32_t>(delta.codec), kOut, delta.bytes, delta.encoded};
        }();
        const ops::DeltaCodec codec = changed == 1    ? ops::DeltaCodec::gaps
                                      : changed == 20 ? ops::DeltaCodec::bitmap
                                                      : ops::DeltaCodec::dense;
        ASSERT_EQ(entry.codec, static_cast<std::uint32_t>(codec));
        const auto become = [&](const std::vector<float>& values) {
            std::memcpy(arena_.data(), values.data(), 256);
        };
        become(fresh);
        const std::vector<ops::Checksum> all = checksums();
        const auto push_changes = [&](std::int64_t version) {
            // A whole version first, which the fire does not reach.
            become(none);
            push_staged(*engine, version);
            become(fresh);
            version = ++version_;
            try {
                engine->begin(version, soon());
                engine->buckets().load_delta(0, {&entry, 1}, soon());
                engine->buckets().wait_loaded(0, soon());
                engine->verify(all, soon());
                engine->commit(version, manifest(version, all), soon());
            } catch (const ProtocolError&) {
                engine->abort("refused", soon());
                throw;
            }
        };
        for (const std::size_t at : {std::size_t{0}, entry.bytes - 1})
            under_fire(kOut + at, all, push_changes);
    }
}

}  // namespace
}  // namespace tandem::engine
