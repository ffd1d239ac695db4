// Attention, forward and backward, packed and paged.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::AttentionSegment;

struct AttentionCase {
    std::int64_t q_rows, k_rows, heads, kv_heads, head_dim;
    std::vector<AttentionSegment> segments;
};

// Every kernel instance, ragged tiles, grouped heads, rows in no segment, queries that see no key, keys that
// two segments share.
std::vector<AttentionCase> attention_cases() {
    return {{1, 1, 1, 1, 1, {{0, 1, 0, 1, true}}},
            {5, 5, 2, 1, 7, {{0, 5, 0, 5, true}}},
            {70, 70, 2, 2, 16, {{0, 3, 0, 3, true}, {3, 67, 3, 67, true}}},
            {140, 140, 2, 1, 64, {{0, 140, 0, 140, true}}},
            {33, 70, 3, 1, 80, {{2, 29, 1, 66, true}}},
            {40, 90, 2, 1, 128, {{0, 40, 0, 90, false}}},
            {20, 11, 2, 2, 32, {{0, 20, 0, 11, true}}},
            {36, 40, 2, 1, 40, {{0, 12, 0, 30, true}, {12, 10, 20, 20, false}, {22, 14, 0, 40, true}}},
            {34, 34, 1, 1, 256, {{0, 34, 0, 34, true}}},
            {4, 4, 1, 1, 8, {}},
            {3, 0, 1, 1, 8, {{0, 3, 0, 0, true}}}};
}

TEST(GpuAttention, ForwardAndBackward) {
    for (const AttentionCase& c : attention_cases()) {
        SCOPED_TRACE(std::to_string(c.q_rows) + " × " + std::to_string(c.head_dim));
        const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
        const Shape q_shape = {c.q_rows, c.heads, c.head_dim};
        const Shape k_shape = {c.k_rows, c.kv_heads, c.head_dim};
        const Tensor q = random(q_shape, 1), k = random(k_shape, 2), v = random(k_shape, 3);
        const Tensor dout = random(q_shape, 4);
        compare({{q}, {k}, {v}, {random(q_shape, 9)}, {random({c.heads, c.q_rows}, 9), true}},
                BOTH(attention_forward(s, t[0], t[1], t[2], c.segments, scale, t[3], t[4], {})));
        Stream cpu = Stream::make_inline();
        Tensor out = zeros(q_shape), lse = zeros({c.heads, c.q_rows}), delta = zeros({c.heads, c.q_rows});
        ops::attention_forward(cpu, q, k, v, c.segments, scale, out, lse);
        ops::attention_delta(cpu, dout, out, delta);
        compare({{dout}, {out}, {zeros({c.heads, c.q_rows}), true}},
                BOTH(attention_delta(s, t[0], t[1], t[2])));
        // In bfloat16: attention_gradients_test.cpp.
        compare_float32({{dout},
                         {q},
                         {k},
                         {v},
                         {lse, true},
                         {delta, true},
                         {random(q_shape, 5), true},
                         {random(k_shape, 6), true},
                         {random(k_shape, 7), true}},
                        BOTH(attention_backward(s, t[0], t[1], t[2], t[3], t[4], t[5], c.segments, scale,
                                                t[6], t[7], t[8], {})));
    }
}

TEST(GpuAttention, PagedDecode) {
    struct Paged {
        std::int64_t heads, kv_heads, head_dim, page_size;
        std::vector<std::int32_t> lengths;
    };
    const std::vector<Paged> all = {{1, 1, 7, 4, {1, 9}},
                                    {6, 1, 64, 16, {0, 33, 300}},   // a group in two parts, no key, two parts
                                    {24, 2, 128, 8, {17, 1, 290}},  // twelve heads share keys
                                    {4, 2, 80, 8, {130}},
                                    {2, 1, 256, 16, {20, 5}}};
    for (const Paged& p : all) {
        SCOPED_TRACE(p.head_dim);
        const auto batch = static_cast<std::int64_t>(p.lengths.size());
        std::vector<std::vector<std::int32_t>> tables;
        std::int32_t pages = 0;
        for (const std::int32_t length : p.lengths) {
            tables.emplace_back();
            for (std::int64_t i = 0; i * p.page_size < length; ++i) tables.back().push_back(pages++);
            std::reverse(tables.back().begin(), tables.back().end());
        }
        const Shape cache = {pages + 1, p.page_size, p.kv_heads, p.head_dim};
        compare({{random({batch, p.heads, p.head_dim}, 1)},
                 {random(cache, 2)},
                 {random(cache, 3)},
                 {random({batch, p.heads, p.head_dim}, 4)}},
                BOTH(paged_attention_decode(s, t[0], t[1], t[2], tables, p.lengths, 0.2f, t[3])));
    }
}

TEST(GpuAttention, PagedPrefill) {
    struct Paged {
        std::int64_t heads, kv_heads, head_dim, page_size;
        std::vector<ops::PagedSegment> segments;
    };
    const std::vector<Paged> all = {{1, 1, 7, 4, {{0, 3, 9, {2, 0, 1}}}},
                                    {4, 2, 64, 16, {{1, 40, 70, {4, 1, 3, 2, 0}}, {43, 5, 5, {5}}}},
                                    {2, 1, 80, 8, {{0, 17, 17, {3, 4, 5}}}},
                                    {2, 2, 128, 64, {{20, 30, 130, {2, 0, 1}}, {0, 20, 20, {3}}}}};
    for (const Paged& p : all) {
        SCOPED_TRACE(p.head_dim);
        const Shape cache = {6, p.page_size, p.kv_heads, p.head_dim};
        compare({{random({50, p.heads, p.head_dim}, 1)},
                 {random(cache, 2)},
                 {random(cache, 3)},
                 {random({50, p.heads, p.head_dim}, 4)}},
                BOTH(paged_attention_prefill(s, t[0], t[1], t[2], p.segments, 0.2f, t[3])));
    }
}

// Rows of a sequence have the same bits from all of it, from parts of it, from a prefill in pieces and from decode.
TEST(GpuAttention, ARowKnowsNotHowItsSequenceIsCut) {
    const std::int64_t rows = 1100, page_size = 16, head_dim = 128;
    const float scale = 0.4f;
    const auto lowered = [](Shape shape, std::uint64_t seed) {
        return with_dtype(random(std::move(shape), seed), DType::bfloat16);
    };
    const Tensor q = lowered({rows, 2, head_dim}, 1);
    const Tensor k = lowered({69, page_size, 1, head_dim}, 2), v = lowered({69, page_size, 1, head_dim}, 3);
    std::vector<std::int32_t> pages(69);
    std::iota(pages.begin(), pages.end(), 0);
    const Tensor there_q = to_tested(q), there_k = to_tested(k), there_v = to_tested(v);
    const auto forward = [&](std::int64_t begin, std::int64_t end) {
        const Shape keys = {69 * page_size, 1, head_dim};
        Tensor out = to_tested(with_dtype(zeros({end - begin, 2, head_dim}), DType::bfloat16));
        Tensor lse = to_tested(zeros({2, end - begin}));
        tested::attention_forward(tested_stream(), there_q.rows(begin, end - begin), there_k.reshape(keys),
                                  there_v.reshape(keys), {{0, end - begin, 0, end, true}}, scale, out, lse,
                                  {});
        return to_host(out);
    };
    const Tensor whole = forward(0, rows);
    expect_close(forward(1020, 1030), whole.rows(1020, 10), 0.0);
    expect_close(forward(0, 200), whole.rows(0, 200), 0.0);

    Tensor prefilled = to_tested(with_dtype(zeros(q.shape()), DType::bfloat16));
    tested::paged_attention_prefill(tested_stream(), there_q, there_k, there_v,
                                    {{1000, 100, 1100, pages}, {0, 333, 333, pages}, {333, 667, 1000, pages}},
                                    scale, prefilled);
    expect_close(to_host(prefilled), whole, 0.0);

    const std::vector<std::int32_t> lengths = {1, 64, 65, 1023, 1024, 1025, 1100};
    const auto batch = static_cast<std::int64_t>(lengths.size());
    const Tensor last = with_dtype(zeros({batch, 2, head_dim}), DType::bfloat16);
    for (std::int64_t b = 0; b < batch; ++b) {
        const Tensor from = q.rows(lengths[static_cast<std::size_t>(b)] - 1, 1);
        std::memcpy(last.rows(b, 1).raw(), from.raw(), from.bytes());
    }
    Tensor out = to_tested(with_dtype(zeros(last.shape()), DType::bfloat16));
    tested::paged_attention_decode(tested_stream(), to_tested(last), there_k, there_v,
                                   std::vector<std::vector<std::int32_t>>(lengths.size(), pages), lengths,
                                   scale, out);
    const Tensor found = to_host(out);
    for (std::int64_t b = 0; b < batch; ++b) {
        SCOPED_TRACE(lengths[static_cast<std::size_t>(b)]);
        expect_close(found.rows(b, 1), whole.rows(lengths[static_cast<std::size_t>(b)] - 1, 1), 0.0);
    }
}

// A sequence's values do not depend on what else is decoded with it.
TEST(GpuAttention, DecodeKnowsNoNeighbours) {
    const Tensor q = random({3, 2, 16}, 1), k = random({40, 8, 1, 16}, 2), v = random({40, 8, 1, 16}, 3);
    const std::vector<std::vector<std::int32_t>> tables = {{1, 2, 3}, {4}, {5, 6}};
    const std::vector<std::int32_t> lengths = {20, 3, 11};
    const Tensor there_k = to_tested(k), there_v = to_tested(v);
    Tensor together = to_tested(zeros({3, 2, 16}));
    tested::paged_attention_decode(tested_stream(), to_tested(q), there_k, there_v, tables, lengths, 0.3f,
                                   together);
    const Tensor found = to_host(together);
    for (std::int64_t b = 0; b < 3; ++b) {
        const auto at = static_cast<std::size_t>(b);
        Tensor alone = to_tested(zeros({1, 2, 16}));
        tested::paged_attention_decode(tested_stream(), to_tested(q.rows(b, 1).clone("t")), there_k, there_v,
                                       {tables[at]}, {lengths[at]}, 0.3f, alone);
        expect_close(to_host(alone), found.rows(b, 1), 0.0);
    }
}

}  // namespace
}  // namespace tandem::tests
