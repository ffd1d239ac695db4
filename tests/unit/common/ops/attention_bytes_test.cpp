// What a step of ring attention moves for its results: the launches, and the bytes of global memory that the
// kernels' threads read and write, all counted.
#include <tuple>

#include "tests/gpu/ops/rig.h"
#include "tests/support/kernels_on_host_bulk.h"
#include "tests/support/kernels_on_host_counts.h"

namespace tandem::tests {
namespace {

constexpr std::int64_t kRows = 70, kKeys = 90, kHeads = 2;

class AttentionBytes : public ::testing::TestWithParam<std::tuple<DType, std::int64_t, bool>> {
  protected:
    AttentionBytes() { fibers::set_as_hopper(std::get<2>(GetParam())); }
    ~AttentionBytes() override { fibers::set_as_hopper(false); }

    fibers::Counts step(const ops::ForwardWrites& writes) {
        fibers::take_counts();
        tested::attention_forward(tested_stream(), q, k, k, {{0, kRows, 0, kKeys, false}}, 0.1f, out, lse,
                                  writes);
        return fibers::take_counts();
    }

    const DType dtype = std::get<0>(GetParam());
    const std::int64_t dim = std::get<1>(GetParam());
    const Tensor q = to_tested(with_dtype(random({kRows, kHeads, dim}, 1), dtype));
    const Tensor k = to_tested(with_dtype(random({kKeys, 1, dim}, 2), dtype));
    const Tensor out = to_tested(zeros(q.shape())), lse = to_tested(zeros({kHeads, kRows}));
    const Tensor rounded = to_tested(with_dtype(zeros(q.shape()), DType::bfloat16));
};

TEST_P(AttentionBytes, AMergingStepReadsAndWritesItsResultsOnce) {
    const std::int64_t elements = kRows * kHeads * dim, rows = kRows * kHeads;
    const fibers::Counts first = step({});
    EXPECT_EQ(first.launches, 1);
    EXPECT_EQ(first.bytes_written, 4 * elements + 4 * rows);

    // 8 bytes an element: the pass of a merge of its own had 12, and 4 for the block that it read.
    const fibers::Counts merging = step({.merge = true});
    EXPECT_EQ(merging.launches, 1);
    EXPECT_EQ(merging.bytes_read - first.bytes_read, 4 * elements + 4 * rows);
    EXPECT_EQ(merging.bytes_written, first.bytes_written);

    // The last step: no pass that casts.
    const fibers::Counts last = step({.merge = true, .rounded = rounded});
    EXPECT_EQ(last.launches, 1);
    EXPECT_EQ(last.bytes_read, merging.bytes_read);
    EXPECT_EQ(last.bytes_written, merging.bytes_written + 2 * elements);
}
INSTANTIATE_TEST_SUITE_P(Kernels, AttentionBytes,
                         ::testing::Values(std::tuple(DType::bfloat16, 64, false),
                                           std::tuple(DType::bfloat16, 128, true),
                                           std::tuple(DType::float32, 128, false)));

}  // namespace
}  // namespace tandem::tests
