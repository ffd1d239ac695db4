// Ops that share their rows among threads. OpenMP's barriers are unknown to the thread sanitizer: not for it.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/ops/elementwise.h"
#include "common/ops/matmul.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/swiglu.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::random_tensor;
using testing::zeros;

// Enough rows for threads, none of their numbers a multiple of another.
TEST(RowsOnThreads, DoNotDependOnTheirNumber) {
    constexpr std::int64_t kTokens = 83, kHeads = 5, kHeadDim = 80, kDim = kHeads * kHeadDim;
    const ops::RopeTable table = testing::rope_table(777, kHeadDim);
    std::vector<std::int32_t> positions(kTokens);
    std::iota(positions.begin(), positions.end(), 9);
    const auto row_ops = [&](DType dtype, int threads) {
        Stream stream = Stream::make_inline();
        std::mt19937 generator(2);
        const Tensor x = random_tensor(generator, {kTokens, kDim}, dtype);
        const Tensor more = random_tensor(generator, {kTokens, kDim}, dtype);
        const Tensor gain = random_tensor(generator, {kDim}, dtype);
        const Tensor normed = zeros({kTokens, kDim}, dtype), rstd = zeros({kTokens});
        const Tensor sum = x.clone("test"), heads = x.clone("test").reshape({kTokens, kHeads, kHeadDim});
        const Tensor activated = zeros({kTokens, kDim}, dtype), normed_sum = zeros({kTokens, kDim}, dtype);
        ops::set_compute_threads(threads);
        ops::rms_norm(stream, x, gain, 1e-6f, normed, rstd);
        ops::add(stream, sum, more);
        ops::add_rms_norm(stream, sum, x, gain, 1e-6f, normed_sum);
        ops::rope(stream, heads, positions, table);
        ops::swiglu(stream, x, more, activated);
        ops::set_compute_threads(1);
        return std::vector<Tensor>{normed, rstd, sum, normed_sum, heads, activated};
    };
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const std::vector<Tensor> wanted = row_ops(dtype, 1);
        for (const int threads : {2, 3, 7}) {
            const std::vector<Tensor> got = row_ops(dtype, threads);
            for (std::size_t i = 0; i < got.size(); ++i) testing::expect_same_bits(got[i], wanted[i], "rows");
        }
    }
}

}  // namespace
}  // namespace tandem
