// A row of attention has the same bits whoever computes it: the whole sequence, a prefix, a later chunk of
// queries, a packed call, a piece or the decode step over a paged cache.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <tuple>

#include "common/error.h"
#include "common/ops/attention.h"
#include "common/ops/matmul.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using ops::AttentionSegment;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::zeros;

constexpr std::int64_t kHeads = 6;
constexpr std::int64_t kKvHeads = 2;
constexpr float kScale = 0.17f;

struct Sequence {
    Tensor q, k, v;
};

Sequence random_sequence(std::mt19937& generator, std::int64_t rows, std::int64_t head_dim, DType dtype) {
    return {random_tensor(generator, {rows, kHeads, head_dim}, dtype),
            random_tensor(generator, {rows, kKvHeads, head_dim}, dtype),
            random_tensor(generator, {rows, kKvHeads, head_dim}, dtype)};
}

Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v,
               const std::vector<AttentionSegment>& segments) {
    Stream stream = Stream::make_inline();
    const Tensor out = zeros(q.shape());
    const Tensor lse = zeros({kHeads, q.dim(0)});
    ops::attention_forward(stream, q, k, v, segments, kScale, out, lse);
    return out;
}

class AttentionInvariance : public ::testing::TestWithParam<std::tuple<std::int64_t, DType>> {};

TEST_P(AttentionInvariance, PrefixesAndChunks) {
    const auto [head_dim, dtype] = GetParam();
    std::mt19937 generator(1);
    const std::int64_t rows = 300;
    const Sequence s = random_sequence(generator, rows, head_dim, dtype);
    const Tensor whole = forward(s.q, s.k, s.v, {{0, rows, 0, rows, true}});
    for (std::int64_t n = 1; n <= rows; n += n < 140 ? 1 : 7) {
        const Tensor prefix = forward(s.q.rows(0, n), s.k.rows(0, n), s.v.rows(0, n), {{0, n, 0, n, true}});
        expect_same_bits(prefix, whole.rows(0, n), "prefix");
        const std::int64_t first = n / 3;  // queries first..n over keys 0..n: bottom-right alignment
        const Tensor chunk =
            forward(s.q.rows(first, n - first), s.k.rows(0, n), s.v.rows(0, n), {{0, n - first, 0, n, true}});
        expect_same_bits(chunk, whole.rows(first, n - first), "chunk");
        if (HasFatalFailure()) FAIL() << "n " << n;
    }
    // packed behind another sequence, whose length is no multiple of anything
    const Tensor packed = forward(s.q, s.k, s.v, {{0, 37, 0, 37, true}, {37, 200, 37, 200, true}});
    const Tensor alone =
        forward(s.q.rows(37, 200), s.k.rows(37, 200), s.v.rows(37, 200), {{0, 200, 0, 200, true}});
    expect_same_bits(packed.rows(37, 200), alone, "packed");
}

// The keys and values of a sequence in shuffled pages, among others' values.
struct Paged {
    Paged(std::mt19937& generator, const Sequence& s, std::int64_t page_size)
        : table(static_cast<std::size_t>((s.k.dim(0) + page_size - 1) / page_size)) {
        std::iota(table.begin(), table.end(), 1);  // page 0 belongs to nobody
        std::shuffle(table.begin(), table.end(), generator);
        const Shape shape{static_cast<std::int64_t>(table.size()) + 1, page_size, kKvHeads, s.k.dim(2)};
        k = random_tensor(generator, shape, s.k.dtype());
        v = random_tensor(generator, shape, s.k.dtype());
        const std::size_t row_bytes = s.k.bytes() / static_cast<std::size_t>(s.k.dim(0));
        for (std::int64_t i = 0; i < s.k.dim(0); ++i) {
            const std::int64_t slot =
                table[static_cast<std::size_t>(i / page_size)] * page_size + i % page_size;
            std::memcpy(k.raw() + static_cast<std::size_t>(slot) * row_bytes, s.k.rows(i, 1).raw(),
                        row_bytes);
            std::memcpy(v.raw() + static_cast<std::size_t>(slot) * row_bytes, s.v.rows(i, 1).raw(),
                        row_bytes);
        }
    }
    std::vector<std::int32_t> table;
    Tensor k, v;
};

TEST_P(AttentionInvariance, PagedDecodeIsTheLastRow) {
    const auto [head_dim, dtype] = GetParam();
    Stream stream = Stream::make_inline();
    std::mt19937 generator(2);
    const std::int64_t rows = 300;
    const Sequence s = random_sequence(generator, rows, head_dim, dtype);
    const Tensor whole = forward(s.q, s.k, s.v, {{0, rows, 0, rows, true}});
    for (const std::int64_t page_size : {1, 5, 16, 64, 100}) {
        const Paged cache(generator, s, page_size);
        // all lengths in one batch
        const std::vector<std::vector<std::int32_t>> tables(static_cast<std::size_t>(rows), cache.table);
        std::vector<std::int32_t> lengths(static_cast<std::size_t>(rows));
        std::iota(lengths.begin(), lengths.end(), 1);
        const Tensor out = zeros(s.q.shape());
        ops::paged_attention_decode(stream, s.q, cache.k, cache.v, tables, lengths, kScale, out);
        expect_same_bits(out, whole, "batch of all lengths");
        const Tensor one = zeros({1, kHeads, head_dim});
        ops::paged_attention_decode(stream, s.q.rows(170, 1), cache.k, cache.v, {cache.table}, {171}, kScale,
                                    one);
        expect_same_bits(one, whole.rows(170, 1), "alone");
        if (HasFatalFailure()) FAIL() << "page size " << page_size;
    }
}

TEST_P(AttentionInvariance, PagedPiecesAreTheWhole) {
    const auto [head_dim, dtype] = GetParam();
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    const std::int64_t rows = 300;
    const Sequence s = random_sequence(generator, rows, head_dim, dtype);
    const Tensor whole = forward(s.q, s.k, s.v, {{0, rows, 0, rows, true}});
    for (const std::int64_t page_size : {1, 16, 100}) {
        const Paged cache(generator, s, page_size);
        for (std::int64_t piece = 1; piece <= rows; piece += piece < 33 ? 1 : 53) {
            // Pieces are of one call, in another order, for rows do not depend on their neighbours; on some
            // threads.
            std::vector<ops::PagedSegment> segments;
            for (std::int64_t begin = 0; begin < rows; begin += piece) {
                const std::int64_t count = std::min(piece, rows - begin);
                segments.push_back({begin, count, begin + count, cache.table});
            }
            std::shuffle(segments.begin(), segments.end(), generator);
            const Tensor out = zeros(s.q.shape());
            ops::set_compute_threads(piece % 3 == 0 ? 4 : 1);
            ops::paged_attention_prefill(stream, s.q, cache.k, cache.v, segments, kScale, out);
            ops::set_compute_threads(1);
            expect_same_bits(out, whole, "pieces");
            if (HasFatalFailure()) FAIL() << "page size " << page_size << ", pieces of " << piece;
        }
    }
}

TEST(PagedPieces, RowsOfNoSegmentStayAndBadOnesAreRefused) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(4);
    const Sequence s = random_sequence(generator, 8, 16, DType::float32);
    const Paged cache(generator, s, 4);
    const Tensor out = random_tensor(generator, s.q.shape(), DType::float32);
    const auto before = out.rows(0, 2).to_vector<float>();
    const auto run = [&](const std::vector<ops::PagedSegment>& segments) {
        ops::paged_attention_prefill(stream, s.q, cache.k, cache.v, segments, kScale, out);
    };
    run({{2, 6, 8, cache.table}});
    EXPECT_EQ(out.rows(0, 2).to_vector<float>(), before);
    EXPECT_THROW(run({{2, 7, 8, cache.table}}), InvalidArgument) << "rows past q";
    EXPECT_THROW(run({{0, 4, 3, cache.table}}), InvalidArgument) << "more rows than positions";
    EXPECT_THROW(run({{0, 4, 9, cache.table}}), InvalidArgument) << "more positions than pages";
    EXPECT_THROW(run({{0, 4, 8, {1, 99}}}), InvalidArgument) << "a page that is not there";
    EXPECT_THROW(run({{0, 4, 8, cache.table}, {3, 2, 8, cache.table}}), InvalidArgument) << "shared rows";
}

INSTANTIATE_TEST_SUITE_P(Dims, AttentionInvariance,
                         ::testing::Combine(::testing::Values(8, 16, 20, 64, 128),
                                            ::testing::Values(DType::float32, DType::bfloat16)));

}  // namespace
}  // namespace tandem
