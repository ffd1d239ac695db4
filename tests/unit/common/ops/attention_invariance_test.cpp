// A row of attention has the same bits whoever computes it: the whole sequence, a prefix, a later chunk of
// queries, a packed call, a piece or the decode step over a paged cache.
#include <gtest/gtest.h>

#include <cmath>
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

// Sequences of pages of their own, and the new token of each.
struct DecodeStep {
    DecodeStep(std::mt19937& generator, std::int64_t batch, std::int64_t page_size, std::int64_t head_dim,
               DType dtype)
        : token(random_sequence(generator, batch, head_dim, dtype)), out(zeros(token.q.shape())) {
        std::int32_t pages = 0;
        for (std::int64_t b = 0; b < batch; ++b) {
            lengths.push_back(static_cast<std::int32_t>(b == 0 ? 1 : 64 * b + b * b));
            tables.emplace_back(static_cast<std::size_t>((lengths.back() + page_size - 1) / page_size));
            std::iota(tables.back().rbegin(), tables.back().rend(), pages);
            pages += static_cast<std::int32_t>(tables.back().size());
        }
        k_cache = random_tensor(generator, {pages, page_size, kKvHeads, head_dim}, dtype);
        v_cache = random_tensor(generator, k_cache.shape(), dtype);
    }
    DecodeStep copy() const {
        DecodeStep result = *this;
        for (Tensor* tensor :
             {&result.token.q, &result.token.k, &result.k_cache, &result.v_cache, &result.out})
            *tensor = tensor->clone("test");
        return result;
    }
    Sequence token;  // of each sequence a row
    Tensor out, k_cache, v_cache;
    std::vector<std::vector<std::int32_t>> tables;
    std::vector<std::int32_t> lengths;
};

ops::RopeTable rope_table(std::int64_t head_dim) {
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < head_dim / 2; ++i)
        frequencies.push_back(std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(head_dim)));
    return ops::RopeTable(frequencies);
}

void rotate_and_decode(Stream& stream, DecodeStep& s, const ops::RopeTable& table) {
    ops::rotate_and_decode(stream, s.token.q, s.token.k, s.token.v, s.k_cache, s.v_cache, s.tables, s.lengths,
                           table, kScale, s.out);
}

void in_three_ops(Stream& stream, DecodeStep& s, const ops::RopeTable& table) {
    std::vector<std::int32_t> positions;
    for (const std::int32_t length : s.lengths) positions.push_back(length - 1);
    ops::rope(stream, s.token.q, positions, table);
    ops::rope(stream, s.token.k, positions, table);
    const std::int64_t page_size = s.k_cache.dim(1);
    const std::size_t bytes = s.token.k.rows(0, 1).bytes();
    for (std::size_t b = 0; b < s.lengths.size(); ++b) {
        const std::int64_t page = s.tables[b][static_cast<std::size_t>(positions[b] / page_size)];
        const auto slot = static_cast<std::size_t>(page * page_size + positions[b] % page_size);
        std::memcpy(s.k_cache.raw() + slot * bytes, s.token.k.raw() + b * bytes, bytes);
        std::memcpy(s.v_cache.raw() + slot * bytes, s.token.v.raw() + b * bytes, bytes);
    }
    ops::paged_attention_decode(stream, s.token.q, s.k_cache, s.v_cache, s.tables, s.lengths, kScale, s.out);
}

// Few sequences, whose heads threads share, and many.
TEST_P(AttentionInvariance, ADecodeStepIsItsThreeOps) {
    const auto [head_dim, dtype] = GetParam();
    Stream here = Stream::make_inline(), later = Stream::make_worker("test");
    std::mt19937 generator(5);
    const ops::RopeTable table = rope_table(head_dim);
    for (const std::int64_t batch : {1, 3, 9}) {
        for (const std::int64_t page_size : {5, 16}) {
            DecodeStep expected(generator, batch, page_size, head_dim, dtype);
            for (const int threads : {1, 2, 3}) {
                SCOPED_TRACE(::testing::Message() << batch << " sequences in pages of " << page_size << ", "
                                                  << threads << " threads");
                DecodeStep one = expected.copy(), three = expected.copy();
                in_three_ops(here, three, table);
                ops::set_compute_threads(threads);
                rotate_and_decode(threads == 2 ? later : here, one, table);
                later.synchronize();
                ops::set_compute_threads(1);
                expect_same_bits(one.out, three.out, "out");
                expect_same_bits(one.token.q, three.token.q, "q");
                expect_same_bits(one.token.k, three.token.k, "k");
                expect_same_bits(one.k_cache, three.k_cache, "keys");
                expect_same_bits(one.v_cache, three.v_cache, "values");
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST(RotateAndDecode, RefusesWhatItCannotDo) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(6);
    const DecodeStep whole(generator, 2, 4, 16, DType::float32);
    const auto run = [&](const DecodeStep& changed, std::int64_t table_dim) {
        DecodeStep step = changed.copy();
        rotate_and_decode(stream, step, rope_table(table_dim));
    };
    EXPECT_NO_THROW(run(whole, 16));
    EXPECT_THROW(run(whole, 8), InvalidArgument) << "a table of other heads";
    DecodeStep changed = whole;
    changed.lengths[1] = 0;
    EXPECT_THROW(run(changed, 16), InvalidArgument) << "no new token";
    changed = whole;
    changed.lengths[1] += 1000;
    EXPECT_THROW(run(changed, 16), InvalidArgument) << "more positions than pages";
    changed = whole;
    changed.token.k = changed.token.k.rows(0, 1);
    EXPECT_THROW(run(changed, 16), InvalidArgument) << "a key too few";
    changed = whole;
    changed.token.v = zeros(whole.token.v.shape(), DType::bfloat16);
    EXPECT_THROW(run(changed, 16), InvalidArgument) << "values of another dtype";
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
