// The forward of attention on tensor cores, on the host: against fp64, and what a row must not depend on.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "common/ops/shared/bits.h"
#include "tests/unit/common/ops/attention_on_host.h"

namespace tandem::tests {
namespace {

using testing::Doubles;
using testing::expect_same_bits;
using testing::random_tensor;
using testing::to_doubles;

std::int64_t pick(std::mt19937& generator, std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, std::max(low, high))(generator);
}

// Random rectangles over disjoint rows of q, some of which see no key; ranges of keys may overlap.
std::vector<AttentionSegment> random_segments(std::mt19937& generator, const AttentionDims& dims) {
    std::vector<AttentionSegment> segments;
    std::int64_t at = pick(generator, 0, 3);
    while (at < dims.q_rows) {
        const std::int64_t q_len = pick(generator, 1, dims.q_rows - at);
        const std::int64_t k_begin = pick(generator, 0, dims.k_rows / 3);
        segments.push_back(
            {at, q_len, k_begin, pick(generator, 0, dims.k_rows - k_begin), pick(generator, 0, 2) > 0});
        at += q_len + pick(generator, 0, 3);
    }
    return segments;
}

HostCase make_case(std::mt19937& generator, const AttentionDims& dims,
                   std::vector<AttentionSegment> segments) {
    return testing::attention_case(generator, dims, std::move(segments), DType::bfloat16);
}

HostCase random_case(std::uint32_t seed) {
    std::mt19937 generator(seed);
    constexpr std::int64_t kHeadDims[] = {64, 128, 96, 128, 64, 8, 40, 72, 80, 104, 256, 136};
    AttentionDims dims{};
    dims.head_dim = kHeadDims[seed % std::size(kHeadDims)];
    const std::int64_t most = dims.head_dim > 128 ? 80 : 200;
    dims.q_rows = pick(generator, 1, most);
    dims.k_rows = pick(generator, 1, most);
    dims.kv_heads = pick(generator, 1, 2);
    dims.heads = dims.kv_heads * pick(generator, 1, dims.head_dim > 128 ? 1 : 2);
    HostCase c = make_case(generator, dims, random_segments(generator, dims));
    if (seed % 5 < 2) c.scale *= 5;  // so that rows move their references
    return c;
}

double rounded(double value) {
    return static_cast<double>(
        ops::shared::float_of_bfloat16(ops::shared::bfloat16_bits(static_cast<float>(value))));
}

// The same where scores, weights and results are bfloat16 each, as a framework without fused kernels has them.
Doubles naive_bfloat16(const HostCase& c) {
    const Doubles q = to_doubles(c.q), k = to_doubles(c.k), v = to_doubles(c.v);
    const std::int64_t dim = c.dims.head_dim, group = c.dims.heads / c.dims.kv_heads;
    Doubles out(q.size(), 0.0);
    const auto at = [&](std::int64_t row, std::int64_t heads, std::int64_t head) {
        return static_cast<std::size_t>((row * heads + head) * dim);
    };
    for (const AttentionSegment& s : c.segments) {
        for (std::int64_t item = 0; item < s.q_len * c.dims.heads; ++item) {
            const std::int64_t i = item / c.dims.heads, head = item % c.dims.heads;
            const std::int64_t seen =
                std::clamp<std::int64_t>(s.causal ? i + s.k_len - s.q_len + 1 : s.k_len, 0, s.k_len);
            const double* const row = &q[at(s.q_begin + i, c.dims.heads, head)];
            Doubles weights;
            double most = -std::numeric_limits<double>::infinity(), sum = 0.0;
            for (std::int64_t j = 0; j < seen; ++j) {
                const double* const key = &k[at(s.k_begin + j, c.dims.kv_heads, head / group)];
                double score = 0.0;
                for (std::int64_t d = 0; d < dim; ++d) score += row[d] * key[d];
                weights.push_back(rounded(rounded(score) * static_cast<double>(c.scale)));
                most = std::max(most, weights.back());
            }
            for (double& weight : weights) sum += weight = std::exp(weight - most);
            double* const to = &out[at(s.q_begin + i, c.dims.heads, head)];
            for (std::int64_t j = 0; j < seen; ++j) {
                const double weight = rounded(weights[static_cast<std::size_t>(j)] / sum);
                const double* const value = &v[at(s.k_begin + j, c.dims.kv_heads, head / group)];
                for (std::int64_t d = 0; d < dim; ++d) to[d] += weight * value[d];
            }
            for (std::int64_t d = 0; d < dim; ++d) to[d] = rounded(to[d]);
        }
    }
    return out;
}

double largest_error(const Doubles& found, const Doubles& wanted) {
    double most = 0.0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double error = std::abs(found[i] - wanted[i]);
        if (!(error <= most)) most = error;  // NaN too
    }
    return most;
}

void expect_right(const HostCase& c, DType out_dtype) {
    const auto wanted = testing::naive_attention(c.dims, to_doubles(c.q), to_doubles(c.k), to_doubles(c.v),
                                                 c.segments, static_cast<double>(c.scale));
    used_tensor_cores();
    const HostOutputs found = host_forward(c, out_dtype);
    const bool sees_keys =
        std::any_of(wanted.out.begin(), wanted.out.end(), [](double value) { return value != 0.0; });
    EXPECT_EQ(used_tensor_cores(), sees_keys);
    const double naive = largest_error(naive_bfloat16(c), wanted.out);
    EXPECT_LE(largest_error(to_doubles(found.out), wanted.out), 2.0 * naive + 1e-6);
    const Doubles lse = to_doubles(found.lse);
    for (std::size_t i = 0; i < lse.size(); ++i) {
        if (lse[i] == wanted.lse[i]) continue;
        ASSERT_NEAR(lse[i], wanted.lse[i], 1e-5 * std::max(1.0, std::abs(wanted.lse[i]))) << "lse " << i;
    }
}

class AttentionForwardMma : public ::testing::TestWithParam<int> {};

TEST_P(AttentionForwardMma, AgainstFp64) {
    const auto seed = static_cast<std::uint32_t>(GetParam());
    const HostCase c = random_case(seed);
    SCOPED_TRACE(fmt::format("{} rows, {} keys, {} heads of {}", c.dims.q_rows, c.dims.k_rows, c.dims.heads,
                             c.dims.head_dim));
    expect_right(c, seed % 2 == 0 ? DType::bfloat16 : DType::float32);
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionForwardMma, ::testing::Range(0, 200));

TEST(AttentionForwardOnHost, PartsOfManyKeys) {
    std::mt19937 generator(5);
    for (const std::int64_t keys : {1023, 1024, 1025, 2048, 2060}) {
        SCOPED_TRACE(keys);
        for (const std::int64_t head_dim : {64, 128}) {
            const AttentionDims dims{35, keys, 1, 1, head_dim};
            expect_right(make_case(generator, dims, {{0, 33, 0, keys, true}, {33, 2, 0, keys, false}}),
                         DType::float32);
        }
    }
}

// Bits of a case, with everything that none of its segments may see replaced by NaN.
TEST(AttentionForwardOnHost, NeighboursDoNotMatter) {
    std::mt19937 generator(6);
    for (const std::int64_t head_dim : {64, 80, 96, 128}) {
        SCOPED_TRACE(head_dim);
        const AttentionDims dims{150, 170, 2, 1, head_dim};
        HostCase c = make_case(generator, dims, {{3, 70, 5, 70, true}, {80, 66, 90, 70, false}});
        const HostOutputs clean = host_forward(c);
        const auto poison = [](const Tensor& rows, std::int64_t begin, std::int64_t end) {
            const Tensor chosen = rows.rows(begin, end - begin);
            std::memset(chosen.raw(), 0xff, chosen.bytes());  // NaN
        };
        for (const Tensor& keys : {c.k, c.v}) {
            poison(keys, 0, 5);
            poison(keys, 75, 90);
            poison(keys, 160, 170);
        }
        poison(c.q, 0, 3);
        poison(c.q, 73, 80);
        poison(c.q, 146, 150);
        const HostOutputs found = host_forward(c);
        expect_same_bits(found.out, clean.out, "out");
        expect_same_bits(found.lse, clean.lse, "lse");
    }
}

}  // namespace
}  // namespace tandem::tests
