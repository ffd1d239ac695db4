// See oracle.h.
#include "tests/unit/common/ops/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace tandem::testing {

using ops::AttentionSegment;

ops::RopeTable rope_table(double theta, std::int64_t head_dim) {
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < head_dim; i += 2) {
        frequencies.push_back(
            static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim))));
    }
    return ops::RopeTable(std::move(frequencies));
}

Tensor zeros(const Shape& shape, DType dtype) {
    return Tensor::zeros(shape, dtype, "test");
}

Tensor random_tensor(std::mt19937& generator, const Shape& shape, DType dtype, float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    Tensor result = zeros(shape, dtype);
    for (std::int64_t i = 0; i < result.numel(); ++i) {
        const float value = normal(generator);
        if (dtype == DType::float32) {
            result.data<float>()[i] = value;
        } else {
            result.data<bfloat16>()[i] = bfloat16(value);
        }
    }
    return result;
}

Doubles to_doubles(const Tensor& tensor) {
    Doubles result;
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
        result.push_back(tensor.dtype() == DType::float32
                             ? static_cast<double>(tensor.data<float>()[i])
                             : static_cast<double>(float(tensor.data<bfloat16>()[i])));
    }
    return result;
}

void expect_close(const Tensor& got, const Doubles& wanted, double relative, const char* what,
                  double absolute) {
    ASSERT_EQ(static_cast<std::size_t>(got.numel()), wanted.size()) << what;
    double square = 0.0;
    double finite = 1e-30;
    for (const double value : wanted) {
        if (!std::isfinite(value)) continue;
        square += value * value;
        finite += 1.0;
    }
    const double typical = std::sqrt(square / finite);
    const double step =
        got.dtype() == DType::bfloat16 ? 1.0 / 256.0 : 0.0;  // half a step, relative to the value
    const Doubles values = to_doubles(got);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (!std::isfinite(wanted[i])) {
            ASSERT_EQ(values[i], wanted[i]) << what << " at " << i;
            continue;
        }
        const double bound =
            relative * std::max(std::abs(wanted[i]), typical) + step * std::abs(wanted[i]) + absolute;
        ASSERT_LE(std::abs(values[i] - wanted[i]), bound)
            << what << " at " << i << ": " << values[i] << " for " << wanted[i];
    }
}

void expect_within_plain(const Tensor& got, const Doubles& wanted, const Doubles& plain, const char* what,
                         double times) {
    ASSERT_EQ(static_cast<std::size_t>(got.numel()), wanted.size()) << what;
    double furthest = 0.0, largest = 0.0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        furthest = std::max(furthest, std::abs(plain[i] - wanted[i]));
        largest = std::max(largest, std::abs(wanted[i]));
    }
    const Doubles values = to_doubles(got);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_LE(std::abs(values[i] - wanted[i]), times * furthest + 1e-5 * largest)
            << what << " at " << i << ": " << values[i] << " for " << wanted[i];
    }
}

void expect_same_bits(const Tensor& a, const Tensor& b, const char* what) {
    ASSERT_EQ(a.bytes(), b.bytes()) << what;
    ASSERT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << what;
}

Doubles finite_differences(const std::function<Doubles(const Doubles&)>& forward, const Doubles& x,
                           const Doubles& weights) {
    const auto loss = [&](const Doubles& at) {
        const Doubles y = forward(at);
        double sum = 0.0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * weights[i];
        return sum;
    };
    constexpr double kStep = 1e-5;
    Doubles gradient(x.size());
    Doubles moved = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
        moved[i] = x[i] + kStep;
        const double above = loss(moved);
        moved[i] = x[i] - kStep;
        const double below = loss(moved);
        moved[i] = x[i];
        gradient[i] = (above - below) / (2.0 * kStep);
    }
    return gradient;
}

namespace {

// Calls visit(q row, head, kv head, first key, number of keys seen) for every query of the segments.
template <typename Visit>
void for_each_query(const AttentionDims& dims, const std::vector<AttentionSegment>& segments,
                    const Visit& visit) {
    for (const AttentionSegment& s : segments) {
        for (std::int64_t i = 0; i < s.q_len; ++i) {
            std::int64_t seen = s.causal ? i + s.k_len - s.q_len + 1 : s.k_len;
            seen = std::max<std::int64_t>(0, std::min(seen, s.k_len));
            for (std::int64_t head = 0; head < dims.heads; ++head) {
                visit(s.q_begin + i, head, head / (dims.heads / dims.kv_heads), s.k_begin, seen);
            }
        }
    }
}

std::size_t at(std::int64_t row, std::int64_t heads, std::int64_t head, std::int64_t head_dim) {
    return static_cast<std::size_t>((row * heads + head) * head_dim);
}

double dot(const double* a, const double* b, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

double as_bfloat16(double value) {
    return static_cast<double>(float(bfloat16(static_cast<float>(value))));
}

}  // namespace

AttentionCase attention_case(std::mt19937& generator, const AttentionDims& dims,
                             std::vector<AttentionSegment> segments, DType dtype) {
    const Shape keys = {dims.k_rows, dims.kv_heads, dims.head_dim};
    return {dims,
            std::move(segments),
            random_tensor(generator, {dims.q_rows, dims.heads, dims.head_dim}, dtype),
            random_tensor(generator, keys, dtype),
            random_tensor(generator, keys, dtype),
            1.0f / std::sqrt(static_cast<float>(dims.head_dim))};
}

AttentionResult naive_attention(const AttentionDims& dims, const Doubles& q, const Doubles& k,
                                const Doubles& v, const std::vector<AttentionSegment>& segments, double scale,
                                bool rounded) {
    const auto round = [&](double value) { return rounded ? as_bfloat16(value) : value; };
    AttentionResult result;
    result.out.assign(q.size(), 0.0);
    result.lse.assign(static_cast<std::size_t>(dims.heads * dims.q_rows),
                      -std::numeric_limits<double>::infinity());
    const std::int64_t d = dims.head_dim;
    for_each_query(dims, segments, [&](auto row, auto head, auto kv, auto first, auto seen) {
        if (seen == 0) return;
        Doubles p;
        double max = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = 0; j < seen; ++j) {
            const double score =
                dot(&q[at(row, dims.heads, head, d)], &k[at(first + j, dims.kv_heads, kv, d)], d);
            p.push_back(round(scale * round(score)));
            max = std::max(max, p.back());
        }
        double sum = 0.0;
        for (double& value : p) sum += value = std::exp(value - max);
        double* const out = &result.out[at(row, dims.heads, head, d)];
        for (std::int64_t j = 0; j < seen; ++j) {
            const double weight = round(p[static_cast<std::size_t>(j)] / sum);
            const double* const value = &v[at(first + j, dims.kv_heads, kv, d)];
            for (std::int64_t i = 0; i < d; ++i) out[i] += weight * value[i];
        }
        for (std::int64_t i = 0; i < d; ++i) out[i] = round(out[i]);
        result.lse[static_cast<std::size_t>(head * dims.q_rows + row)] = max + std::log(sum);
    });
    return result;
}

AttentionGradients naive_attention_backward(const AttentionDims& dims, const Doubles& q, const Doubles& k,
                                            const Doubles& v, const Doubles& dout,
                                            const std::vector<AttentionSegment>& segments, double scale,
                                            bool rounded) {
    const AttentionResult forward = naive_attention(dims, q, k, v, segments, scale);
    AttentionGradients g{Doubles(q.size(), 0.0), Doubles(k.size(), 0.0), Doubles(v.size(), 0.0)};
    const std::int64_t d = dims.head_dim;
    const auto round = [&](double value) { return rounded ? as_bfloat16(value) : value; };
    for_each_query(dims, segments, [&](auto row, auto head, auto kv, auto first, auto seen) {
        const std::size_t qi = at(row, dims.heads, head, d);
        const double delta = dot(&dout[qi], &forward.out[qi], d);
        const double lse = forward.lse[static_cast<std::size_t>(head * dims.q_rows + row)];
        for (std::int64_t j = 0; j < seen; ++j) {
            const std::size_t kj = at(first + j, dims.kv_heads, kv, d);
            const double p = std::exp(scale * dot(&q[qi], &k[kj], d) - lse);
            const double ds = round(p * (round(dot(&dout[qi], &v[kj], d)) - delta)) * scale;
            for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) {
                g.dv[kj + i] += round(p) * dout[qi + i];
                g.dq[qi + i] += ds * k[kj + i];
                g.dk[kj + i] += ds * q[qi + i];
            }
        }
    });
    return g;
}

}  // namespace tandem::testing
