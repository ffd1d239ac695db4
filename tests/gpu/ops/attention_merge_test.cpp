// Attention over blocks of keys, each merged into the result of those before: whatever their order, it is the
// attention over all of them.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/gpu/ops/rig.h"
#if defined(TANDEM_KERNELS_ON_HOST)
#include "tests/support/kernels_on_host_bulk.h"
#include "tests/support/kernels_on_host_counts.h"
#endif

namespace tandem::tests {
namespace {

using ops::AttentionSegment;
using Block = std::vector<AttentionSegment>;

struct MergeProblem {
    std::int64_t heads, kv_heads;
    Tensor q, k, v;  // on the tested device
    AttentionSegment whole;
    std::vector<Block> blocks;
    float scale;
};

struct Outputs {
    Tensor out, lse, rounded;
};

Tensor not_numbers(Shape shape, DType dtype = DType::float32) {
    Tensor result = Tensor::empty(std::move(shape), dtype, "test");
    std::memset(result.raw(), 0xff, result.bytes());
    return to_tested(result);
}

// The last block's rows are rounded, too.
Outputs merged(const MergeProblem& p, const std::vector<std::size_t>& order) {
    Outputs r{not_numbers(p.q.shape()), not_numbers({p.heads, p.q.dim(0)}),
              not_numbers(p.q.shape(), DType::bfloat16)};
    for (std::size_t i = 0; i < order.size(); ++i) {
        const bool last = i + 1 == order.size();
        tested::attention_forward(tested_stream(), p.q, p.k, p.v, p.blocks[order[i]], p.scale, r.out, r.lse,
                                  {.merge = i > 0, .rounded = last ? r.rounded : Tensor()});
    }
    return {to_host(r.out), to_host(r.lse), to_host(r.rounded)};
}

double farthest(const Tensor& found, const Tensor& wanted) {
    const std::vector<double> a = values_of(found), b = values_of(wanted);
    double most = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double distance = std::abs(a[i] - b[i]);
        if (!(distance <= most)) most = distance;  // NaN too
    }
    return most;
}

// Rows of segments have been rounded, the others left alone.
void expect_rounded(const Outputs& found, const Block& block) {
    const Tensor narrow = with_dtype(found.out, DType::bfloat16);
    Tensor wanted = Tensor::empty(narrow.shape(), DType::bfloat16, "test");
    std::memset(wanted.raw(), 0xff, wanted.bytes());
    for (const AttentionSegment& s : block) {
        const Tensor rows = narrow.rows(s.q_begin, s.q_len);
        std::memcpy(wanted.rows(s.q_begin, s.q_len).raw(), rows.raw(), rows.bytes());
    }
    EXPECT_EQ(std::memcmp(found.rounded.raw(), wanted.raw(), wanted.bytes()), 0) << "rounded";
}

// In some orders, at most twice as far from float32 on the CPU as attention over all keys at once.
void expect_whole(const MergeProblem& p, const std::vector<std::vector<std::size_t>>& orders) {
    Stream cpu = Stream::make_inline();
    const Shape row_scalars = {p.heads, p.q.dim(0)};
    const auto wide = [](const Tensor& tensor) { return with_dtype(to_host(tensor), DType::float32); };
    const Tensor out = zeros(p.q.shape()), lse = zeros(row_scalars);
    ops::attention_forward(cpu, wide(p.q), wide(p.k), wide(p.v), {p.whole}, p.scale, out, lse);
    Tensor once = not_numbers(p.q.shape()), once_lse = not_numbers(row_scalars);
    tested::attention_forward(tested_stream(), p.q, p.k, p.v, {p.whole}, p.scale, once, once_lse, {});
    const double allowed = 2.0 * farthest(to_host(once), out) + 1e-5;
    for (const auto& order : orders) {
        SCOPED_TRACE(::testing::PrintToString(order));
        const Outputs found = merged(p, order);
        EXPECT_LE(farthest(found.out, out), allowed);
        expect_close(found.lse, lse);
        expect_rounded(found, p.blocks[order.back()]);
    }
}

Tensor there(Shape shape, std::uint64_t seed, DType dtype) {
    return to_tested(with_dtype(random(std::move(shape), seed), dtype));
}

MergeProblem make_problem(std::int64_t rows, std::int64_t keys, std::int64_t head_dim, DType dtype) {
    MergeProblem p{2, 1, {}, {}, {}, {}, {}, 1.0f / std::sqrt(static_cast<float>(head_dim))};
    p.q = there({rows, p.heads, head_dim}, 1, dtype);
    p.k = there({keys, p.kv_heads, head_dim}, 2, dtype);
    p.v = there({keys, p.kv_heads, head_dim}, 3, dtype);
    return p;
}

// Causal attention in three blocks of keys. Rows before a block's keys are in its segments and see nothing, or
// are in no segment.
MergeProblem causal_blocks(std::int64_t head_dim, DType dtype, bool blind) {
    constexpr std::int64_t kKeys = 45, kRows = 3 * kKeys;
    MergeProblem p = make_problem(kRows, kRows, head_dim, dtype);
    p.whole = {0, kRows, 0, kRows, true};
    for (std::int64_t first = 0; first < kRows; first += kKeys) {
        const std::int64_t begin = blind ? 0 : first, end = first + kKeys;
        p.blocks.push_back(
            {{end, kRows - end, first, kKeys, false}, {begin, end - begin, first, kKeys, true}});
    }
    return p;
}

void on_every_device(const std::function<void()>& check) {
    check();
#if defined(TANDEM_KERNELS_ON_HOST)
    const bool before = fibers::as_hopper();
    fibers::set_as_hopper(true);
    fibers::take_counts();
    check();
    EXPECT_GT(fibers::take_counts().group_products, 0);
    fibers::set_as_hopper(before);
#endif
}

const std::vector<std::vector<std::size_t>> kEveryOrder = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                                           {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

// As in the ring; and with what the most rows see at the end.
const std::vector<std::vector<std::size_t>> kTwoOrders = {{1, 0, 2}, {2, 1, 0}};

void check_causal(std::int64_t head_dim, DType dtype, bool blind) {
    SCOPED_TRACE(std::to_string(head_dim) + (blind ? ", rows that see nothing" : ""));
    expect_whole(causal_blocks(head_dim, dtype, blind), head_dim == 64 ? kEveryOrder : kTwoOrders);
}

TEST(GpuAttentionMerge, OnTensorCores) {
    on_every_device([] {
        for (const bool blind : {true, false}) check_causal(64, DType::bfloat16, blind);
        for (const std::int64_t head_dim : {80, 96, 128, 256})
            check_causal(head_dim, DType::bfloat16, head_dim % 64 == 0);
    });
}

TEST(GpuAttentionMerge, WithoutTensorCores) {
    for (const bool blind : {true, false}) check_causal(64, DType::float32, blind);
    for (const std::int64_t head_dim : {7, 128, 256})
        check_causal(head_dim, DType::float32, head_dim % 64 == 0);
    check_causal(7, DType::bfloat16, true);
}

// Blocks of several parts (row_law.cuh).
TEST(GpuAttentionMerge, BlocksOfManyKeys) {
    on_every_device([] {
        MergeProblem p = make_problem(5, 2300, 64, DType::bfloat16);
        p.whole = {0, 5, 0, 2300, false};
        p.blocks = {{{0, 5, 0, 1100, false}}, {{0, 5, 1100, 1200, false}}};
        expect_whole(p, {{1, 0}});
    });
}

}  // namespace
}  // namespace tandem::tests
