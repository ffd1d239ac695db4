// A row of attention has the same bits on tensor cores however its sequence is cut, packed or paged
// (common/ops/cuda/attention/row_law.cuh), on the host.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/unit/common/ops/attention_on_host.h"

namespace tandem::tests {
namespace {

using testing::expect_same_bits;
using testing::random_tensor;

struct Sequence {
    Tensor q, k, v;  // bfloat16
    float scale;

    std::int64_t rows() const { return k.dim(0); }
};

Sequence random_sequence(std::int64_t rows, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t head_dim) {
    std::mt19937 generator(static_cast<std::uint32_t>(rows * 1000 + head_dim));
    const Shape keys = {rows, kv_heads, head_dim};
    return {random_tensor(generator, {rows, heads, head_dim}, DType::bfloat16),
            random_tensor(generator, keys, DType::bfloat16), random_tensor(generator, keys, DType::bfloat16),
            6.0f / std::sqrt(static_cast<float>(head_dim))};  // so that rows move their references
}

// Queries [begin, end) of the first `end` positions.
Tensor piece(const Sequence& s, std::int64_t begin, std::int64_t end) {
    const std::int64_t count = end - begin;
    const HostCase c{{count, end, s.q.dim(1), s.k.dim(1), s.q.dim(2)},
                     {{0, count, 0, end, true}},
                     s.q.rows(begin, count),
                     s.k.rows(0, end),
                     s.v.rows(0, end),
                     s.scale};
    return host_forward(c).out;
}

// The sequence in shuffled pages of a cache; slots of no position hold NaN.
struct PagedCache {
    PagedCache(const Sequence& s, std::int64_t page_size)
        : table(static_cast<std::size_t>((s.rows() + page_size - 1) / page_size)) {
        std::mt19937 generator(3);
        std::iota(table.begin(), table.end(), 1);  // page 0 belongs to nobody
        std::shuffle(table.begin(), table.end(), generator);
        const Shape shape = {static_cast<std::int64_t>(table.size()) + 1, page_size, s.k.dim(1), s.k.dim(2)};
        k = paged(s.k, shape);
        v = paged(s.v, shape);
    }
    Tensor paged(const Tensor& rows, const Shape& shape) const {
        const Tensor cache = Tensor::empty(shape, rows.dtype(), "cache");
        std::memset(cache.raw(), 0xff, cache.bytes());
        const std::size_t bytes = rows.bytes() / static_cast<std::size_t>(rows.dim(0));
        for (std::int64_t i = 0; i < rows.dim(0); ++i) {
            const std::int64_t slot = table[static_cast<std::size_t>(i / shape[1])] * shape[1] + i % shape[1];
            std::memcpy(cache.raw() + static_cast<std::size_t>(slot) * bytes, rows.rows(i, 1).raw(), bytes);
        }
        return to_tested(cache);
    }
    std::vector<std::int32_t> table;
    Tensor k, v;
};

// The last row of each of these lengths, decoded in one batch.
Tensor decoded(const Sequence& s, const PagedCache& cache, const std::vector<std::int32_t>& lengths) {
    const auto batch = static_cast<std::int64_t>(lengths.size());
    const Tensor q = Tensor::empty({batch, s.q.dim(1), s.q.dim(2)}, DType::bfloat16, "q");
    for (std::int64_t b = 0; b < batch; ++b) {
        const Tensor from = s.q.rows(lengths[static_cast<std::size_t>(b)] - 1, 1);
        std::memcpy(q.rows(b, 1).raw(), from.raw(), from.bytes());
    }
    Tensor out = to_tested(zeros(q.shape()));
    tested::paged_attention_decode(tested_stream(), to_tested(q), cache.k, cache.v,
                                   std::vector<std::vector<std::int32_t>>(lengths.size(), cache.table),
                                   lengths, s.scale, out);
    return to_host(out);
}

// Rows [begin, end) of the sequence, in pieces of a paged prefill.
Tensor prefilled(const Sequence& s, const PagedCache& cache, std::int64_t begin, std::int64_t end,
                 std::int64_t length) {
    std::vector<ops::PagedSegment> pieces;
    for (std::int64_t at = begin; at < end; at += length) {
        const std::int64_t count = std::min(length, end - at);
        pieces.push_back({at - begin, count, at + count, cache.table});
    }
    std::reverse(pieces.begin(), pieces.end());
    Tensor out = to_tested(zeros({end - begin, s.q.dim(1), s.q.dim(2)}));
    tested::paged_attention_prefill(tested_stream(), to_tested(s.q.rows(begin, end - begin)), cache.k,
                                    cache.v, pieces, s.scale, out);
    return to_host(out);
}

TEST(AttentionBitsOnHost, PrefixesAndChunks) {
    for (const std::int64_t head_dim : {64, 128}) {
        const std::int64_t rows = 140;
        const Sequence s = random_sequence(rows, 1, 1, head_dim);
        const Tensor whole = piece(s, 0, rows);
        for (std::int64_t n = 1; n <= rows; ++n) {
            const bool edge = n % 16 <= 1 || n % 16 == 15;
            if (head_dim == 128 && !edge) continue;
            expect_same_bits(piece(s, 0, n), whole.rows(0, n), "prefix");
            if (edge) expect_same_bits(piece(s, n / 3, n), whole.rows(n / 3, n - n / 3), "chunk");
            if (::testing::Test::HasFailure()) FAIL() << "head_dim " << head_dim << ", " << n << " positions";
        }
    }
}

TEST(AttentionBitsOnHost, Packed) {
    for (const std::int64_t head_dim : {64, 80, 96, 128, 256}) {
        SCOPED_TRACE(head_dim);
        const Sequence s = random_sequence(130, 2, 1, head_dim);
        const HostCase packed{{130, 130, 2, 1, head_dim},
                              {{0, 37, 0, 37, true}, {37, 66, 37, 66, true}, {103, 27, 103, 27, true}},
                              s.q,
                              s.k,
                              s.v,
                              s.scale};
        const Sequence middle{s.q.rows(37, 66), s.k.rows(37, 66), s.v.rows(37, 66), s.scale};
        expect_same_bits(host_forward(packed).out.rows(37, 66), piece(middle, 0, 66), "packed");
    }
}

TEST(AttentionBitsOnHost, Decode) {
    std::vector<std::int32_t> all(131);
    std::iota(all.begin(), all.end(), 1);
    const std::vector<std::int32_t> edges = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 131};
    for (const std::int64_t head_dim : {64, 72, 96, 128, 256}) {
        const Sequence s = random_sequence(131, 4, 2, head_dim);
        const Tensor whole = piece(s, 0, 131);
        for (const std::int64_t page_size : {1, 8, 16, 64}) {
            SCOPED_TRACE(fmt::format("heads of {}, pages of {}", head_dim, page_size));
            const std::vector<std::int32_t>& lengths = head_dim == 64 && page_size == 16 ? all : edges;
            used_tensor_cores();
            const Tensor out = decoded(s, PagedCache(s, page_size), lengths);
            EXPECT_TRUE(used_tensor_cores());
            for (std::size_t b = 0; b < lengths.size(); ++b) {
                expect_same_bits(out.rows(static_cast<std::int64_t>(b), 1), whole.rows(lengths[b] - 1, 1),
                                 "decode");
            }
            if (::testing::Test::HasFailure()) return;
        }
    }
}

// More heads share keys than a product has rows.
TEST(AttentionBitsOnHost, DecodeOfLargeGroups) {
    const Sequence s = random_sequence(70, 40, 2, 64);
    expect_same_bits(decoded(s, PagedCache(s, 8), {1, 64, 70}).rows(2, 1), piece(s, 69, 70), "group of 20");
}

TEST(AttentionBitsOnHost, Prefill) {
    for (const std::int64_t head_dim : {64, 72, 96, 128, 256}) {
        SCOPED_TRACE(head_dim);
        const std::int64_t rows = 150;
        const Sequence s = random_sequence(rows, 2, 1, head_dim);
        const Tensor whole = piece(s, 0, rows);
        for (const std::int64_t page_size : {1, 8, 16, 64}) {
            if (page_size != 16 && head_dim != 64) continue;
            const PagedCache cache(s, page_size);
            for (const std::int64_t length : {150, 64, 41, 9}) {
                expect_same_bits(prefilled(s, cache, 0, rows, length), whole, "prefill");
                if (::testing::Test::HasFailure())
                    FAIL() << "page size " << page_size << ", pieces of " << length;
            }
        }
        EXPECT_TRUE(used_tensor_cores());
    }
}

// Around the ends of parts: chunks, decode and pieces of prefill.
TEST(AttentionBitsOnHost, Parts) {
    const Sequence s = random_sequence(2052, 2, 1, 64);
    for (const std::int64_t end : {1027, 2051}) {
        const std::int64_t begin = end - 6;
        const Tensor chunk = piece(s, begin, end);
        for (const std::int64_t page_size : {1, 16, 64}) {
            const PagedCache cache(s, page_size);
            std::vector<std::int32_t> lengths(6);
            std::iota(lengths.begin(), lengths.end(), static_cast<std::int32_t>(begin) + 1);
            expect_same_bits(decoded(s, cache, lengths), chunk, "decode");
            expect_same_bits(prefilled(s, cache, begin, end, page_size == 1 ? 6 : 2), chunk, "prefill");
            if (::testing::Test::HasFailure()) FAIL() << "before " << end << ", page size " << page_size;
        }
        for (std::int64_t row = begin; row < end; ++row)
            expect_same_bits(piece(s, row, row + 1), chunk.rows(row - begin, 1), "alone");
    }
}

}  // namespace
}  // namespace tandem::tests
