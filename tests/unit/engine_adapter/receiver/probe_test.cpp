// The probe, and the link that every byte from a region passes.
#include <algorithm>
#include <vector>

#include "common/tensor/dtype.h"
#include "tests/unit/engine_adapter/receiver/receiver_rig.h"

namespace tandem::engine {
namespace {

using testing::HasSubstr;

class ProbeTest : public ReceiverRig {
  protected:
    static constexpr std::size_t kBytes = 2 << 20;
    ProbeTest() : ReceiverRig({.copy_threads = 2, .link_bytes_per_s = 20e6}) {
        arena_ = SharedArena::create("probe", kBytes);
    }
};

TEST_F(ProbeTest, CopiesPiecesToMemoryThatNobodyReadsOverTheLink) {
    const auto engine = connect();
    push(*engine, 1, 1);
    for (const std::uint64_t piece : {kBytes, std::size_t{300'001}, std::size_t{4096}}) {
        const double ms = engine->probe(0, kBytes, piece, soon());
        EXPECT_GE(ms, 104) << piece;  // 2 MiB at 20 MB/s, less what a link may be ahead
    }
    double byte = 1e9;  // the best of five: other work may run beside it
    for (int i = 0; i < 5; ++i) byte = std::min(byte, engine->probe(kBytes - 1, 1, 1, soon()));
    EXPECT_LT(byte, 104);
    EXPECT_THAT(message_of<ProtocolError>([&] { engine->probe(1, kBytes, kBytes, soon()); }),
                HasSubstr("are not inside the 2097152 bytes of region 0"));
    EXPECT_THROW(engine->probe(~std::uint64_t{0} >> 1, 2, 2, soon()), ProtocolError);
    EXPECT_THROW(engine->probe(0, kBytes, std::uint64_t{1} << 40, soon()), InvalidArgument);
    expect_weights(1);
}

TEST_F(ProbeTest, PiecesWithoutNumberAreRefused) {
    const auto engine = connect();
    EXPECT_THAT(message_of<InvalidArgument>([&] { engine->probe(0, kBytes, 1, soon()); }),
                HasSubstr("probe of 2097152 bytes in 2097152 pieces of 1"));
    EXPECT_GE(engine->probe(0, 4096, 1, soon()), 0.0);
}

TEST_F(ProbeTest, BucketsAndChangesPassTheLinkToo) {
    constexpr std::size_t kTensor = 1 << 20;
    TestTarget target({{"x", {kTensor / 4}, DType::float32}});
    const Receiver receiver(target, {.copy_threads = 2, .link_bytes_per_s = 20e6});
    TransferPlan plan;
    for (std::uint64_t i = 0; i < 16; ++i)
        plan.transfers.push_back({0, 0, 0, DType::float32, 1, 1 << 14, i << 16, 0, i << 16, 0});
    plan.first.push_back(16);
    std::vector<ops::Checksum> all;
    std::vector<DeltaEntry> entries;
    for (const Transfer& t : plan.transfers) {
        all.push_back(ops::checksum({arena_.data() + t.from, 1 << 16}));
        entries.push_back({static_cast<std::uint32_t>(all.size() - 1), 3, t.from, 1 << 16, all.back()});
    }
    const auto engine = engine::connect(receiver.address(), soon());
    engine->attach(regions(), plan, soon());
    engine->begin(1, soon());
    engine->buckets().load(0, all, soon());
    EXPECT_GE(engine->buckets().wait_loaded(0, soon()), 52);
    engine->commit(1, manifest_checksum(1, engine->capabilities().tensors, plan, all), soon());
    engine->begin(2, soon());
    engine->buckets().load_delta(0, entries, soon());
    EXPECT_GE(engine->buckets().wait_loaded(0, soon()), 52);
    EXPECT_LT(engine->verify(all, soon()), 50);  // its own memory is not at the other end of the link
    engine->commit(2, manifest_checksum(2, engine->capabilities().tensors, plan, all), soon());
}

}  // namespace
}  // namespace tandem::engine
