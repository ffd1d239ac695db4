// The probe: a measured copy of a region, to memory that nobody reads.
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
    ProbeTest() : ReceiverRig({.copy_threads = 2}) { arena_ = SharedArena::create("probe", kBytes); }
};

TEST_F(ProbeTest, CopiesPiecesToMemoryThatNobodyReads) {
    const auto engine = connect();
    push(*engine, 1, 1);
    for (const std::uint64_t piece : {kBytes, std::size_t{300'001}, std::size_t{4096}}) {
        EXPECT_GT(engine->probe(0, kBytes, piece, soon()), 0) << piece;
    }
    EXPECT_GT(engine->probe(kBytes - 1, 1, 1, soon()), 0);
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

}  // namespace
}  // namespace tandem::engine
