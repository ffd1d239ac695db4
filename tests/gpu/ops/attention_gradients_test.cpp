// The gradients of attention in bfloat16, whose products round p and ds: against fp64, beside what the same
// roundings cost fp64; and what they may depend on.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/gpu/ops/rig.h"
#if defined(TANDEM_KERNELS_ON_HOST)
#include "tests/support/kernels_on_host_counts.h"
#endif

namespace tandem::tests {
namespace {

using ops::AttentionSegment;
using Doubles = std::vector<double>;

struct Problem {
    std::int64_t q_rows, k_rows, heads, kv_heads, head_dim;
    std::vector<AttentionSegment> segments;
    Tensor q, k, v, dout;  // bfloat16
    float scale;

    Shape q_shape() const { return {q_rows, heads, head_dim}; }
    Shape k_shape() const { return {k_rows, kv_heads, head_dim}; }
};

Problem make_problem(std::int64_t q_rows, std::int64_t k_rows, std::int64_t heads, std::int64_t kv_heads,
                     std::int64_t head_dim, std::vector<AttentionSegment> segments, std::uint64_t seed = 1) {
    Problem p{q_rows, k_rows, heads, kv_heads, head_dim, std::move(segments), {}, {}, {}, {}, 0.0f};
    p.q = with_dtype(random(p.q_shape(), seed), DType::bfloat16);
    p.k = with_dtype(random(p.k_shape(), seed + 1), DType::bfloat16);
    p.v = with_dtype(random(p.k_shape(), seed + 2), DType::bfloat16);
    p.dout = with_dtype(random(p.q_shape(), seed + 3), DType::bfloat16);
    p.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    return p;
}

struct Gradients {
    Doubles dq, dk, dv;
};

// lse and delta of each row [heads, q_rows], and the gradients, in fp64; `rounded`: with p, dp and ds rounded
// to bfloat16, as plain bfloat16 arithmetic has them.
struct Reference {
    Doubles lse, delta;
    Gradients gradients;
};

double as_bfloat16(double value) {
    std::uint32_t bits = 0;
    const auto narrow = static_cast<float>(value);
    std::memcpy(&bits, &narrow, 4);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    float result = 0.0f;
    std::memcpy(&result, &bits, 4);
    return static_cast<double>(result);
}

double dot(const double* a, const double* b, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

void add_scaled(double factor, const double* from, double* to, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

Reference reference_of(const Problem& p, bool rounded) {
    const Doubles q = values_of(p.q), k = values_of(p.k), v = values_of(p.v), dout = values_of(p.dout);
    const auto round = [&](double value) { return rounded ? as_bfloat16(value) : value; };
    const auto scale = static_cast<double>(p.scale);
    const auto rows = static_cast<std::size_t>(p.heads * p.q_rows);
    Reference r{
        Doubles(rows, -INFINITY), Doubles(rows), {Doubles(q.size()), Doubles(k.size()), Doubles(v.size())}};
    for (const AttentionSegment& s : p.segments) {
        for (std::int64_t item = 0; item < s.q_len * p.heads; ++item) {
            const std::int64_t i = item / p.heads, head = item % p.heads;
            const std::int64_t past = s.causal ? i + s.k_len - s.q_len + 1 : s.k_len;
            const std::int64_t seen = std::clamp<std::int64_t>(past, 0, s.k_len);
            if (seen == 0) continue;
            const std::int64_t at = ((s.q_begin + i) * p.heads + head) * p.head_dim;
            const auto key = [&](std::int64_t j) {
                return ((s.k_begin + j) * p.kv_heads + head / (p.heads / p.kv_heads)) * p.head_dim;
            };
            Doubles weights, dp;
            for (std::int64_t j = 0; j < seen; ++j) {
                weights.push_back(dot(q.data() + at, k.data() + key(j), p.head_dim) * scale);
                dp.push_back(round(dot(dout.data() + at, v.data() + key(j), p.head_dim)));
            }
            const double most = *std::max_element(weights.begin(), weights.end());
            double sum = 0.0, delta = 0.0;
            for (const double weight : weights) sum += std::exp(weight - most);
            const double lse = most + std::log(sum);
            for (double& weight : weights) weight = std::exp(weight - lse);
            for (std::size_t j = 0; j < dp.size(); ++j) delta += weights[j] * dp[j];
            const auto row = static_cast<std::size_t>(head * p.q_rows + s.q_begin + i);
            r.lse[row] = lse;
            r.delta[row] = delta;
            for (std::int64_t j = 0; j < seen; ++j) {
                const double weight = weights[static_cast<std::size_t>(j)];
                const double ds = round(weight * (dp[static_cast<std::size_t>(j)] - delta)) * scale;
                add_scaled(round(weight), dout.data() + at, r.gradients.dv.data() + key(j), p.head_dim);
                add_scaled(ds, q.data() + at, r.gradients.dk.data() + key(j), p.head_dim);
                add_scaled(ds, k.data() + key(j), r.gradients.dq.data() + at, p.head_dim);
            }
        }
    }
    return r;
}

Tensor float32_of(const Doubles& values, Shape shape) {
    Tensor result = Tensor::empty(std::move(shape), DType::float32, "test");
    std::transform(values.begin(), values.end(), result.values<float>().begin(),
                   [](double value) { return static_cast<float>(value); });
    return result;
}

struct Found {
    Tensor dq, dk, dv;
    std::int64_t products = 0;  // of tensor cores by mma.sync, where they are counted
};

// What the tested op adds to gradients that are `before` everywhere.
Found gradients_of(const Problem& p, const Tensor& lse, const Tensor& delta, float before = 0.0f,
                   DType dtype = DType::bfloat16, ops::GradientWrites writes = {}) {
    const auto there = [&](const Tensor& tensor) {
        return to_tested(dtype == DType::float32 ? with_dtype(tensor, dtype) : tensor);
    };
    const auto filled = [&](Shape shape) {
        Tensor result = zeros(std::move(shape));
        for (float& value : result.values<float>()) value = before;
        return to_tested(result);
    };
    Tensor dq = filled(p.q_shape()), dk = filled(p.k_shape()), dv = filled(p.k_shape());
#if defined(TANDEM_KERNELS_ON_HOST)
    fibers::take_counts();
#endif
    tested::attention_backward(tested_stream(), there(p.dout), there(p.q), there(p.k), there(p.v),
                               to_tested(lse), to_tested(delta), p.segments, p.scale, dq, dk, dv, writes);
    std::int64_t products = 0;
#if defined(TANDEM_KERNELS_ON_HOST)
    const fibers::Counts counts = fibers::take_counts();
    products = counts.products;
    const auto all = lse.values<float>();
    const bool sees = std::any_of(all.begin(), all.end(), [](float row) { return std::isfinite(row); });
    const bool fits = dtype == DType::bfloat16 && p.dout.dtype() == dtype && p.head_dim % 8 == 0;
    EXPECT_EQ(counts.products + counts.group_products > 0, fits && sees && !p.segments.empty())
        << "by tensor cores, or not";
    EXPECT_EQ(counts.bank_conflicts, 0) << "of " << counts.matrix_loads << " loads";
#endif
    return {to_host(dq), to_host(dk), to_host(dv), products};
}

double farthest(const Doubles& a, const Doubles& b) {
    double most = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double distance = std::abs(a[i] - b[i]);
        if (!(distance <= most)) most = distance;  // NaN too
    }
    return most;
}

double largest(const Doubles& a) {
    return farthest(a, Doubles(a.size()));
}

// At most three times the error of plain bfloat16 arithmetic.
void expect_within(const Tensor& found, const Doubles& wanted, const Doubles& plain, const char* what) {
    const double allowed = 3.0 * farthest(plain, wanted) + 1e-5 * largest(wanted);
    EXPECT_LE(farthest(values_of(found), wanted), allowed) << what;
}

void check(const Problem& p) {
    const Reference exact = reference_of(p, false), plain = reference_of(p, true);
    const Tensor lse = float32_of(exact.lse, {p.heads, p.q_rows});
    const Tensor delta = float32_of(exact.delta, {p.heads, p.q_rows});
    const Found found = gradients_of(p, lse, delta);
    expect_within(found.dq, exact.gradients.dq, plain.gradients.dq, "dq");
    expect_within(found.dk, exact.gradients.dk, plain.gradients.dk, "dk");
    expect_within(found.dv, exact.gradients.dv, plain.gradients.dv, "dv");
}

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Segments over disjoint rows of q, with gaps; their keys may overlap.
std::vector<AttentionSegment> random_segments(std::mt19937_64& engine, std::int64_t q_rows,
                                              std::int64_t k_rows) {
    const auto below = [&](std::int64_t count) {
        return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(count + 1));
    };
    std::vector<AttentionSegment> segments;
    for (std::int64_t at = below(3); at < q_rows;) {
        const std::int64_t q_len = below(q_rows - at), k_begin = below(k_rows);
        segments.push_back({at, q_len, k_begin, below(k_rows - k_begin), below(3) != 0});
        at += q_len + 1 + below(2);
    }
    return segments;
}

TEST(GpuAttentionGradients, RandomShapes) {
    std::mt19937_64 engine(7);
    const auto below = [&](std::int64_t count) {
        return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(count));
    };
    const std::int64_t dims[] = {64, 128, 96, 16, 256, 80, 72, 128, 40, 64, 104, 200};
    const std::int64_t heads[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}};
#if defined(TANDEM_KERNELS_ON_HOST)
    constexpr int kRounds = 24;
#else
    constexpr int kRounds = 48;
#endif
    for (int round = 0; round < kRounds; ++round) {
        const auto& [h, kv] = heads[round / 3 % 4];
        const std::int64_t dim = dims[round % 12];
        const std::int64_t most = dim > 128 ? 60 : 180 / h;
        const std::int64_t q_rows =
            1 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(most));
        const std::int64_t k_rows = 1 + below(most + 40);
        SCOPED_TRACE("round " + std::to_string(round) + ": " + std::to_string(q_rows) + " × " +
                     std::to_string(k_rows) + ", " + std::to_string(h) + " heads of " + std::to_string(dim));
        check(make_problem(q_rows, k_rows, h, kv, dim, random_segments(engine, q_rows, k_rows), engine()));
        if (HasFailure()) return;
    }
}

// What tensor cores cannot take: rows at odd multiples of 2 bytes, gradients in float32.
TEST(GpuAttentionGradients, WithoutTensorCores) {
    check(make_problem(30, 40, 2, 1, 20, {{0, 30, 0, 40, true}}));
    Problem p = make_problem(30, 40, 2, 1, 64, {{0, 30, 0, 40, true}});
    p.dout = random(p.q_shape(), 4);
    check(p);
}

// Ends of tiles, and one row more or fewer.
TEST(GpuAttentionGradients, EndsOfTiles) {
    for (const std::int64_t dim : {64, 96, 128, 192}) {
        for (const std::int64_t length : {31, 32, 33, 127, 128, 129}) {
            SCOPED_TRACE(std::to_string(length) + " rows of " + std::to_string(dim));
            check(make_problem(length, length, 1, 1, dim, {{0, length, 0, length, length % 2 == 1}}));
        }
    }
}

// Several tiles of keys and of queries, heads that share keys, and a stage that crosses the mask's edge.
TEST(GpuAttentionGradients, WideHeadsOfAGroup) {
    check(make_problem(150, 170, 2, 1, 256, {{0, 140, 7, 150, true}, {140, 10, 150, 20, false}}));
}

#if defined(TANDEM_KERNELS_ON_HOST)
// Above 128 columns eight products of queries, keys and columns: three each for dK and dQ, two for dV.
TEST(GpuAttentionGradients, WideHeadsAreProductsOfTensorCores) {
    const Tensor scalars = zeros({1, 128});
    for (const std::int64_t dim : {136, 256}) {
        const Problem p = make_problem(128, 128, 1, 1, dim, {{0, 128, 0, 128, false}});
        EXPECT_EQ(gradients_of(p, scalars, scalars).products, 8 * (128 / 16) * (128 / 8) * (256 / 16)) << dim;
    }
}
#endif

TEST(GpuAttentionGradients, RowsThatSeeNothing) {
    for (const std::int64_t dim : {64, 128, 192, 256}) {
        SCOPED_TRACE(dim);
        // Causal with fewer keys than queries; no keys; no queries; and a segment that has both.
        check(make_problem(
            90, 40, 2, 1, dim,
            {{0, 40, 0, 5, true}, {40, 10, 3, 0, true}, {50, 0, 0, 9, false}, {51, 30, 8, 32, true}}));
        check(make_problem(3, 0, 1, 1, dim, {{0, 3, 0, 0, true}}));
        check(make_problem(4, 4, 1, 1, dim, {}));
    }
}

TEST(GpuAttentionGradients, AreAddedInOneOrder) {
    for (const std::int64_t dim : {64, 80, 128, 256}) {
        SCOPED_TRACE(dim);
        const Problem p = make_problem(
            50, 70, 2, 1, dim, {{0, 20, 0, 44, true}, {20, 12, 30, 40, false}, {34, 16, 10, 16, true}});
        const Reference exact = reference_of(p, false);
        const Tensor lse = float32_of(exact.lse, {p.heads, p.q_rows});
        const Tensor delta = float32_of(exact.delta, {p.heads, p.q_rows});
        const Found first = gradients_of(p, lse, delta, 4.0f), second = gradients_of(p, lse, delta, 4.0f);
        const Found alone = gradients_of(p, lse, delta);
        for (auto part : {&Found::dq, &Found::dk, &Found::dv}) {
            EXPECT_TRUE(same_bits(first.*part, second.*part));
            Doubles wanted = values_of(alone.*part);
            for (double& value : wanted) value += 4.0;
            EXPECT_LE(farthest(values_of(first.*part), wanted), 1e-5);
        }
    }
}

// Written gradients are those added to zeros, whatever was there and also where no segment is.
TEST(GpuAttentionGradients, AreWritten) {
    constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
    const std::vector<AttentionSegment> segments = {
        {2, 20, 3, 30, true}, {22, 12, 30, 30, false}, {36, 9, 10, 9, true}, {45, 2, 0, 0, true}};
    for (const std::int64_t dim : {64, 80, 128, 256}) {
        for (const DType dtype : {DType::bfloat16, DType::float32}) {
            SCOPED_TRACE(std::to_string(dim) + (dtype == DType::float32 ? ", float32" : ", bfloat16"));
            Problem p = make_problem(50, 70, 2, 1, dim, segments);
            const Reference exact = reference_of(p, false);
            const Tensor lse = float32_of(exact.lse, {p.heads, p.q_rows});
            const Tensor delta = float32_of(exact.delta, {p.heads, p.q_rows});
            const Found added = gradients_of(p, lse, delta, 0.0f, dtype);
            const Found written = gradients_of(p, lse, delta, kNaN, dtype, {.dq = true, .dk_dv = true});
            for (auto part : {&Found::dq, &Found::dk, &Found::dv})
                EXPECT_EQ(values_of(written.*part), values_of(added.*part));

            const Found keys = gradients_of(p, lse, delta, 4.0f, dtype, {.dq = false, .dk_dv = true});
            EXPECT_EQ(values_of(keys.dk), values_of(added.dk));
            EXPECT_EQ(values_of(keys.dq.rows(0, 2)), Doubles(static_cast<std::size_t>(4 * dim), 4.0));
        }
    }
    // No segment at all.
    Problem none = make_problem(3, 4, 1, 1, 64, {});
    const Found written =
        gradients_of(none, zeros({1, 3}), zeros({1, 3}), kNaN, DType::bfloat16, {.dq = true, .dk_dv = true});
    for (auto part : {&Found::dq, &Found::dk, &Found::dv}) EXPECT_EQ(largest(values_of(written.*part)), 0.0);
}

// The same values as float32, whose kernels round nothing.
TEST(GpuAttentionGradients, LikeFloat32) {
    for (const std::int64_t dim : {64, 96, 128, 160}) {
        SCOPED_TRACE(dim);
        const Problem p = make_problem(70, 100, 2, 1, dim, {{0, 50, 0, 60, true}, {52, 18, 58, 42, false}});
        const Reference exact = reference_of(p, false);
        const Tensor lse = float32_of(exact.lse, {p.heads, p.q_rows});
        const Tensor delta = float32_of(exact.delta, {p.heads, p.q_rows});
        const Found found = gradients_of(p, lse, delta),
                    wide = gradients_of(p, lse, delta, 0.0f, DType::float32);
        for (auto part : {&Found::dq, &Found::dk, &Found::dv}) {
            const Doubles wanted = values_of(wide.*part);
            EXPECT_LE(farthest(values_of(found.*part), wanted), 0.01 * largest(wanted));
        }
    }
}

// Overwrites rows of a bfloat16 tensor.
void poison(Tensor tensor, std::int64_t begin, std::int64_t count) {
    Tensor rows = tensor.rows(begin, count);
    std::memset(rows.raw(), 0xff, rows.bytes());  // NaN
}

void poison_columns(Tensor row_scalars, std::int64_t begin, std::int64_t count) {
    for (std::int64_t head = 0; head < row_scalars.dim(0); ++head) {
        for (std::int64_t i = begin; i < begin + count; ++i)
            row_scalars.values<float>()[static_cast<std::size_t>(head * row_scalars.dim(1) + i)] =
                std::numeric_limits<float>::quiet_NaN();
    }
}

// Rows of no segment and of other segments, NaN: not a bit of a segment's gradients changes.
TEST(GpuAttentionGradients, KnowNoNeighbours) {
    for (const std::int64_t dim : {64, 80, 96, 128, 192, 256}) {
        SCOPED_TRACE(dim);
        const std::vector<AttentionSegment> segments = {{3, 37, 5, 45, true}, {41, 20, 52, 33, dim == 128}};
        Problem p = make_problem(70, 90, 2, 1, dim, segments);
        const Reference exact = reference_of(p, false);
        const Tensor lse = float32_of(exact.lse, {p.heads, p.q_rows});
        const Tensor delta = float32_of(exact.delta, {p.heads, p.q_rows});
        const Found together = gradients_of(p, lse, delta);

        // All that the first segment does not have.
        for (const Tensor& rows : {p.q, p.dout}) {
            poison(rows, 0, 3);
            poison(rows, 40, 30);
        }
        for (const Tensor& rows : {p.k, p.v}) {
            poison(rows, 0, 5);
            poison(rows, 50, 40);
        }
        for (const Tensor& scalars : {lse, delta}) {
            poison_columns(scalars, 0, 3);
            poison_columns(scalars, 40, 30);
        }
        const Found poisoned = gradients_of(p, lse, delta);
        p.segments.pop_back();
        const Found alone = gradients_of(p, lse, delta);
        for (const Found* const found : {&poisoned, &alone}) {
            EXPECT_TRUE(same_bits(found->dq.rows(3, 37), together.dq.rows(3, 37)));
            EXPECT_TRUE(same_bits(found->dk.rows(5, 45), together.dk.rows(5, 45)));
            EXPECT_TRUE(same_bits(found->dv.rows(5, 45), together.dv.rows(5, 45)));
        }
        EXPECT_EQ(largest(values_of(alone.dq.rows(40, 30))), 0.0);  // of no segment: left alone
        EXPECT_EQ(largest(values_of(alone.dk.rows(50, 40))), 0.0);
    }
}

}  // namespace
}  // namespace tandem::tests
