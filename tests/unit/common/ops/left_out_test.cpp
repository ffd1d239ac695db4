// Kernels with one barrier, wait or commit left out: the racecheck reports each, so that none is there in vain and
// none could be forgotten. (A place counts once, however often kernels come by.)
#include <gmock/gmock.h>

#include <numeric>

#include "tests/gpu/ops/rig.h"
#include "tests/support/kernel_mutations.h"

namespace tandem::tests {
namespace {

using fibers::LeftOut;

Tensor in_bfloat16(Shape shape, std::uint64_t seed) {
    return with_dtype(random(std::move(shape), seed), DType::bfloat16);
}

// Some of each kind of `whats` are there, and none is missed in silence.
void expect_none_survives(const std::vector<LeftOut>& whats, const std::function<void()>& run) {
    for (const LeftOut what : whats) {
        const fibers::Survivors result = fibers::leave_out(what, run);
        EXPECT_GT(result.places, 0u) << static_cast<int>(what);
        EXPECT_THAT(result.survived, ::testing::IsEmpty()) << static_cast<int>(what);
    }
}

TEST(KernelsWithout, RmsNormBackward) {
    for (const std::int64_t dim : {256, 4104}) {  // two stages of copies, and one
        const Tensor x = in_bfloat16({3, dim}, 1), weight = in_bfloat16({dim}, 2),
                     dy = in_bfloat16({3, dim}, 3);
        const Tensor rstd = random({3}, 4);
        expect_none_survives(
            {LeftOut::wait, LeftOut::last_group, LeftOut::commit, LeftOut::block_barrier}, [&] {
                Tensor dx = in_bfloat16({3, dim}, 5), dweight = zeros({dim});
                tested::rms_norm_backward(tested_stream(), dy, x, weight, rstd, dx, dweight, false);
            });
    }
}

TEST(KernelsWithout, AttentionForward) {
    const std::int64_t blind = 140, rows = 70 + blind;
    const Tensor q = in_bfloat16({rows, 1, 128}, 1), k = in_bfloat16({200, 1, 128}, 2);
    const Tensor v = in_bfloat16({200, 1, 128}, 3);
    expect_none_survives({LeftOut::wait, LeftOut::last_group, LeftOut::commit, LeftOut::block_barrier}, [&] {
        Tensor out = in_bfloat16({rows, 1, 128}, 4), lse = zeros({1, rows});
        tested::attention_forward(tested_stream(), q, k, v,
                                  {{0, 70, 0, 200, false}, {70, blind, 70, 5, true}}, 0.1f, out, lse, {});
    });
}

// Two parts: what the block shares about where the first is left.
TEST(KernelsWithout, AttentionForwardOfManyKeys) {
    const Tensor q = in_bfloat16({1, 1, 64}, 1), k = in_bfloat16({1030, 1, 64}, 2);
    const Tensor v = in_bfloat16({1030, 1, 64}, 3);
    expect_none_survives({LeftOut::block_barrier}, [&] {
        Tensor out = in_bfloat16({1, 1, 64}, 4), lse = zeros({1, 1});
        tested::attention_forward(tested_stream(), q, k, v, {{0, 1, 0, 1030, true}}, 0.1f, out, lse, {});
    });
}

TEST(KernelsWithout, PagedDecode) {
    for (const std::int64_t dim : {64, 256}) {
        const Tensor q = in_bfloat16({1, 2, dim}, 1), k = in_bfloat16({25, 16, 1, dim}, 2);
        const Tensor v = in_bfloat16({25, 16, 1, dim}, 3);
        std::vector<std::int32_t> pages(25);
        std::iota(pages.rbegin(), pages.rend(), 0);
        expect_none_survives(
            {LeftOut::wait, LeftOut::last_group, LeftOut::commit, LeftOut::block_barrier}, [&] {
                Tensor out = in_bfloat16({1, 2, dim}, 4);
                tested::paged_attention_decode(tested_stream(), q, k, v, {pages}, {390}, 0.3f, out);
            });
    }
}

// Several stages of each kernel, and a tile of queries that sees no key.
TEST(KernelsWithout, AttentionBackward) {
    for (const std::int64_t dim : {64, 128}) {  // each kernel with operands in registers, and without
        const std::int64_t blind = 140, rows = 70 + blind;
        const Tensor q = in_bfloat16({rows, 2, dim}, 1), dout = in_bfloat16({rows, 2, dim}, 2);
        const Tensor k = in_bfloat16({75, 1, dim}, 3), v = in_bfloat16({75, 1, dim}, 4);
        const Tensor scalars = random({2, rows}, 5);
        expect_none_survives({LeftOut::wait, LeftOut::last_group, LeftOut::commit, LeftOut::block_barrier},
                             [&] {
                                 Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dv = zeros(k.shape());
                                 tested::attention_backward(tested_stream(), dout, q, k, v, scalars, scalars,
                                                            {{0, 70, 0, 70, false}, {70, blind, 70, 5, true}},
                                                            0.1f, dq, dk, dv, {});
                             });
    }
}

// The launches of dV and of dK apart; keys and queries that are held where a stage comes to lie.
TEST(KernelsWithout, AttentionBackwardOfWideHeads) {
    const Tensor q = in_bfloat16({70, 1, 256}, 1), dout = in_bfloat16({70, 1, 256}, 2);
    const Tensor k = in_bfloat16({40, 1, 256}, 3), v = in_bfloat16({40, 1, 256}, 4);
    const Tensor scalars = random({1, 70}, 5);
    expect_none_survives({LeftOut::wait, LeftOut::last_group, LeftOut::commit, LeftOut::block_barrier}, [&] {
        Tensor dq = zeros(q.shape()), dk = zeros(k.shape()), dv = zeros(k.shape());
        tested::attention_backward(tested_stream(), dout, q, k, v, scalars, scalars, {{0, 70, 0, 40, false}},
                                   0.1f, dq, dk, dv, {});
    });
}

}  // namespace
}  // namespace tandem::tests
