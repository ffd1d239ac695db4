// The attention kernels of older machines, on this one: every set against the AVX-free one, and the same
// values for a row however many rows a tile has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/ops/cpu/attention/kernels.h"

namespace tandem {
namespace {

using namespace ops::detail;

struct Data {
    std::int64_t head_dim, width;
    std::vector<float> q, dout, k, v, k_t, v_t, lse, delta;
};

Data random_data(std::mt19937& generator, std::int64_t head_dim, std::int64_t keys) {
    std::normal_distribution<float> normal;
    Data data;
    data.head_dim = head_dim;
    data.width = (head_dim + 15) / 16 * 16;
    const auto rows = [&](std::int64_t count, std::int64_t filled) {
        std::vector<float> result(static_cast<std::size_t>(count * data.width), 0.0f);
        for (std::int64_t i = 0; i < filled; ++i) {
            for (std::int64_t d = 0; d < head_dim; ++d) {
                result[static_cast<std::size_t>(i * data.width + d)] = 0.3f * normal(generator);
            }
        }
        return result;
    };
    data.q = rows(kQueryTile, kQueryTile);
    data.dout = rows(kQueryTile, kQueryTile);
    data.k = rows(kKeyTile, keys);
    data.v = rows(kKeyTile, keys);
    data.k_t.resize(static_cast<std::size_t>(kKeyTile * head_dim));
    data.v_t.resize(data.k_t.size());
    kAttentionBaseline.transpose_tile(data.k.data(), data.width, keys, head_dim, data.k_t.data());
    kAttentionBaseline.transpose_tile(data.v.data(), data.width, keys, head_dim, data.v_t.data());
    data.lse.assign(static_cast<std::size_t>(kQueryTile), 3.0f);
    data.delta.assign(static_cast<std::size_t>(kQueryTile), 0.1f);
    return data;
}

using Results = std::vector<std::vector<float>>;

Results forward(const AttentionKernels& kernels, const Data& data, std::int64_t first, std::int64_t rows,
                std::int64_t keys, std::int64_t visible, const KeyRows* lying = nullptr) {
    const auto n = static_cast<std::size_t>(rows);
    std::vector<float> turned(static_cast<std::size_t>(data.head_dim * kKeyTile));
    std::vector<float> acc(n * static_cast<std::size_t>(data.width), 0.0f);
    // In whole vectors, of which the rows' numbers alone change.
    const std::size_t whole = (n + kStateRows - 1) / kStateRows * kStateRows;
    std::vector<float> max(whole, -std::numeric_limits<float>::infinity()), sum(whole, 0.0f);
    std::vector<float> scores(n * static_cast<std::size_t>(kKeyTile),
                              std::numeric_limits<float>::quiet_NaN());
    std::vector<float> louder = data.q;  // in every other row
    for (std::size_t i = 0; i < louder.size(); ++i)
        if (i / static_cast<std::size_t>(data.width) % 2 == 1) louder[i] *= 2.0f;
    for (const std::vector<float>* q :
         {&data.q, &std::as_const(louder)}) {  // a running maximum stays, or rises
        const ForwardTile tile{.q = q->data() + first * data.width,
                               .k_t = data.k_t.data(),
                               .v = data.v.data(),
                               .acc = acc.data(),
                               .max = max.data(),
                               .sum = sum.data(),
                               .scores = scores.data(),
                               .rows = rows,
                               .head_dim = data.head_dim,
                               .width = data.width,
                               .visible = visible + first,
                               .visible_step = 1,
                               .keys = keys};
        if (lying != nullptr) {
            kernels.rows_tile(tile, *lying, turned.data());
        } else {
            kernels.forward_tile(tile);
        }
    }
    for (std::size_t i = n; i < whole; ++i)
        EXPECT_TRUE(max[i] == -std::numeric_limits<float>::infinity() && sum[i] == 0.0f) << i;
    max.resize(n);
    sum.resize(n);
    return {acc, max, sum};
}

// Of dq, dk and dv, to which rows [first, first + rows) add.
void add_backward(const AttentionKernels& kernels, const Data& data, std::int64_t first, std::int64_t rows,
                  std::int64_t keys, std::int64_t visible, Results& gradients) {
    // What an earlier tile left there is nothing.
    std::vector<float> scores(static_cast<std::size_t>(2 * kQueryTile * kKeyTile),
                              std::numeric_limits<float>::quiet_NaN());
    const std::int64_t at = first * data.width;
    kernels.backward_tile({.q = data.q.data() + at,
                           .dout = data.dout.data() + at,
                           .k = data.k.data(),
                           .k_t = data.k_t.data(),
                           .v_t = data.v_t.data(),
                           .lse = data.lse.data() + first,
                           .delta = data.delta.data() + first,
                           .dq = gradients[0].data() + at,
                           .dk = gradients[1].data(),
                           .dv = gradients[2].data(),
                           .scores = scores.data(),
                           .dscores = scores.data() + kQueryTile * kKeyTile,
                           .rows = rows,
                           .head_dim = data.head_dim,
                           .width = data.width,
                           .visible = visible + first,
                           .visible_step = 1,
                           .keys = keys,
                           .scale = 0.5f});
}

Results no_gradients(const Data& data) {
    const std::vector<float> of_queries(data.q.size(), 0.0f), of_keys(data.k.size(), 0.0f);
    return {of_queries, of_keys, of_keys};
}

Results backward(const AttentionKernels& kernels, const Data& data, std::int64_t rows, std::int64_t keys,
                 std::int64_t visible) {
    Results gradients = no_gradients(data);
    add_backward(kernels, data, 0, rows, keys, visible, gradients);
    return gradients;
}

void expect_near(const Results& a, const Results& b, const char* what) {
    for (std::size_t part = 0; part < a.size(); ++part) {
        for (std::size_t i = 0; i < a[part].size(); ++i) {
            if (a[part][i] == b[part][i]) continue;
            ASSERT_NEAR(a[part][i], b[part][i], 2e-5) << what << " part " << part << " at " << i;
        }
    }
}

class Kernels : public ::testing::TestWithParam<const AttentionKernels*> {};

TEST_P(Kernels, AgreeWithTheBaseline) {
    std::mt19937 generator(1);
    for (const std::int64_t head_dim : {5, 16, 64, 80}) {
        for (const std::int64_t keys : {1, 33, 64}) {
            const Data data = random_data(generator, head_dim, keys);
            for (const std::int64_t rows : {1, 2, 5, 6, 13, 48}) {
                for (const std::int64_t visible : {-3, 1, 40, 64}) {
                    expect_near(forward(*GetParam(), data, 0, rows, keys, visible),
                                forward(kAttentionBaseline, data, 0, rows, keys, visible), "forward");
                    expect_near(backward(*GetParam(), data, rows, keys, visible),
                                backward(kAttentionBaseline, data, rows, keys, visible), "backward");
                    if (HasFatalFailure()) FAIL() << head_dim << " " << keys << " " << rows << " " << visible;
                }
            }
            std::vector<float> turned(data.k_t.size(), -1.0f);
            GetParam()->transpose_tile(data.k.data(), data.width, keys, head_dim, turned.data());
            EXPECT_EQ(turned, data.k_t);
        }
    }
}

TEST_P(Kernels, ARowDoesNotDependOnItsTile) {
    std::mt19937 generator(2);
    for (const std::int64_t head_dim : {16, 64, 80}) {
        const Data data = random_data(generator, head_dim, 64);
        for (const std::int64_t visible : {-30, 0, 5, 64}) {
            const Results all = forward(*GetParam(), data, 0, 48, 64, visible);
            for (std::int64_t rows = 1; rows <= 13; ++rows) {
                for (const std::int64_t first : {0, 1, 17, 35}) {
                    const Results part = forward(*GetParam(), data, first, rows, 64, visible);
                    for (std::size_t p = 0; p < 3; ++p) {
                        const std::size_t stride = part[p].size() / static_cast<std::size_t>(rows);
                        for (std::size_t i = 0; i < part[p].size(); ++i) {
                            ASSERT_EQ(part[p][i], all[p][static_cast<std::size_t>(first) * stride + i])
                                << visible << " " << p << " " << i;
                        }
                    }
                }
            }
        }
    }
}

// Where a tile lies across the diagonal it may leave out what no row sees.
TEST_P(Kernels, BackwardAddsRowByRow) {
    std::mt19937 generator(4);
    for (const std::int64_t head_dim : {5, 64, 80}) {
        for (const std::int64_t keys : {7, 64}) {
            Data data = random_data(generator, head_dim, keys);
            data.lse[20] = -std::numeric_limits<float>::infinity();  // sees nothing
            for (const std::int64_t visible : {-50, -20, -3, 0, 1, 5, 12, 16, 40, 64}) {
                for (const std::int64_t rows : {1, 11, 12, 13, 30, 48}) {
                    Results wanted = no_gradients(data);
                    for (std::int64_t row = 0; row < rows; ++row)
                        add_backward(*GetParam(), data, row, 1, keys, visible, wanted);
                    ASSERT_EQ(backward(*GetParam(), data, rows, keys, visible), wanted)
                        << head_dim << " " << keys << " " << visible << " " << rows;
                }
            }
        }
    }
}

// Keys and values that lie in a cache, other heads' between them and NaN behind them.
class Cache {
  public:
    Cache(const Data& data, std::int64_t keys, bool halves) : stride_(data.head_dim + 24) {
        bytes_.element_bytes = halves ? 2 : 4;
        bytes_.stride = stride_;
        for (auto* part : {&k_, &v_}) {
            const std::vector<float>& from = part == &k_ ? data.k : data.v;
            part->assign(static_cast<std::size_t>(kKeyTile * stride_),
                         std::numeric_limits<float>::quiet_NaN());
            for (std::int64_t i = 0; i < keys; ++i)
                std::copy_n(from.begin() + i * data.width, data.head_dim, part->begin() + i * stride_);
        }
        for (std::int64_t j = 0; j < kKeyVectors; ++j) {
            bytes_.k[j] = first_row(k_, k_halves_, j, halves);
            bytes_.v[j] = first_row(v_, v_halves_, j, halves);
        }
        // What is asked for ahead need not be there.
        bytes_.looks_ahead = keys % 2 == 0;
        std::copy_n(bytes_.k, kKeyVectors, bytes_.next_k);
        std::copy_n(bytes_.v, kKeyVectors, bytes_.next_v);
    }
    const KeyRows& rows() const { return bytes_; }

  private:
    const std::byte* first_row(const std::vector<float>& from, std::vector<std::uint16_t>& narrow,
                               std::int64_t vector, bool halves) const {
        const std::int64_t at = vector * kKeyRows * stride_;
        if (!halves) return reinterpret_cast<const std::byte*>(from.data() + at);
        if (narrow.empty()) {
            for (const float x : from)
                narrow.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        }
        return reinterpret_cast<const std::byte*>(narrow.data() + at);
    }

    std::int64_t stride_;
    std::vector<float> k_, v_;
    std::vector<std::uint16_t> k_halves_, v_halves_;
    KeyRows bytes_;
};

void round_to_bfloat16(std::vector<float>& values) {
    for (float& x : values) x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
}

TEST_P(Kernels, ReadKeysWhereTheyLieWithTheSameBits) {
    std::mt19937 generator(3);
    for (const std::int64_t head_dim : {32, 64, 160}) {
        for (const std::int64_t keys : {1, 15, 16, 18, 33, 47, 64}) {
            Data data = random_data(generator, head_dim, keys);
            for (const bool halves : {false, true}) {
                if (halves) {
                    round_to_bfloat16(data.k);
                    round_to_bfloat16(data.v);
                    kAttentionBaseline.transpose_tile(data.k.data(), data.width, keys, head_dim,
                                                      data.k_t.data());
                }
                const Cache cache(data, keys, halves);
                for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 13, 48}) {
                    const Results packed = forward(*GetParam(), data, 0, rows, keys, keys);
                    const Results lying = forward(*GetParam(), data, 0, rows, keys, keys, &cache.rows());
                    ASSERT_EQ(lying, packed) << head_dim << " " << keys << " " << halves << " " << rows;
                }
            }
        }
    }
}

// Rows of a tensor are aligned to their elements alone.
TEST_P(Kernels, PackRowsThatLieAnywhere) {
    constexpr std::int64_t kDim = 67, kStride = 69, kWidth = 80, kCount = 20;
    std::vector<float> from(kStride * kCount + 16);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i % 251);
    for (std::int64_t first = 0; first < 16; ++first) {
        std::vector<float> to(kCount * kWidth, -1.0f), halves(to);
        GetParam()->pack_float(from.data() + first, kStride, kCount, kDim, kWidth, 2.0f, to.data());
        const auto* const bits = reinterpret_cast<const std::uint16_t*>(from.data());
        GetParam()->pack_bfloat16(bits + first, kStride, kCount, kDim, kWidth, 1.0f, halves.data());
        for (std::int64_t row = 0; row < kCount; ++row) {
            for (std::int64_t d = 0; d < kWidth; ++d) {
                const std::int64_t at = first + row * kStride + d;
                const auto i = static_cast<std::size_t>(row * kWidth + d);
                ASSERT_EQ(to[i], d < kDim ? 2.0f * from[static_cast<std::size_t>(at)] : 0.0f) << first;
                const std::uint32_t half = d < kDim ? std::uint32_t{bits[at]} << 16 : 0;
                ASSERT_EQ(halves[i], std::bit_cast<float>(half)) << first;
            }
        }
    }
}

std::vector<const AttentionKernels*> available() {
    std::vector<const AttentionKernels*> all = {&kAttentionBaseline};
    if (__builtin_cpu_supports("x86-64-v3")) all.push_back(&kAttentionAvx2);
    if (__builtin_cpu_supports("x86-64-v4")) all.push_back(&kAttentionAvx512);
    return all;
}

INSTANTIATE_TEST_SUITE_P(Isa, Kernels, ::testing::ValuesIn(available()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace tandem
