// RMSNorm, RoPE, SwiGLU, embedding, casts and sums against fp64, gradients against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/swiglu.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using testing::Doubles;
using testing::expect_close;
using testing::expect_same_bits;
using testing::finite_differences;
using testing::random_tensor;
using testing::to_doubles;
using testing::zeros;

constexpr float kEps = 1e-6f;

Doubles naive_rms_norm(const Doubles& x, const Doubles& weight) {
    Doubles y(x.size());
    const std::size_t dim = weight.size();
    for (std::size_t row = 0; row < x.size() / dim; ++row) {
        double sum = 0.0;
        for (std::size_t i = 0; i < dim; ++i) sum += x[row * dim + i] * x[row * dim + i];
        const double rstd = 1.0 / std::sqrt(sum / static_cast<double>(dim) + static_cast<double>(kEps));
        for (std::size_t i = 0; i < dim; ++i) y[row * dim + i] = x[row * dim + i] * rstd * weight[i];
    }
    return y;
}

TEST(RmsNorm, ForwardAndBackward) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(1);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t dim : {1, 5, 16, 17, 64, 100, 576}) {
            const Tensor x = random_tensor(generator, {3, 2, dim}, dtype);
            const Tensor weight = random_tensor(generator, {dim}, dtype);
            const Tensor dy = random_tensor(generator, {3, 2, dim}, dtype);
            const Tensor y = zeros({3, 2, dim}, dtype);
            const Tensor rstd = zeros({6});
            ops::rms_norm(stream, x, weight, kEps, y, rstd);
            const Doubles xs = to_doubles(x), ws = to_doubles(weight), dys = to_doubles(dy);
            expect_close(y, naive_rms_norm(xs, ws), 1e-5, "y");
            const Tensor again = zeros({1, dim}, dtype);
            ops::rms_norm(stream, x.reshape({6, dim}).rows(4, 1), weight, kEps, again);
            expect_same_bits(again, y.reshape({6, dim}).rows(4, 1), "a row alone");
            if (dim > 100) continue;

            const Tensor before = random_tensor(generator, {3, 2, dim});
            const Tensor dx = before.clone("test");
            const Tensor dweight = zeros({dim});
            ops::rms_norm_backward(stream, dy, x, weight, rstd, dx, dweight, true);
            Doubles wanted =
                finite_differences([&](const Doubles& at) { return naive_rms_norm(at, ws); }, xs, dys);
            const Tensor plain = random_tensor(generator, {3, 2, dim});
            ops::rms_norm_backward(stream, dy, x, weight, rstd, plain, zeros({dim}));
            expect_close(plain, wanted, 1e-5, "dx", 1e-5);
            for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += to_doubles(before)[i];
            expect_close(dx, wanted, 1e-5, "dx accumulated", 1e-5);
            expect_close(
                dweight,
                finite_differences([&](const Doubles& at) { return naive_rms_norm(xs, at); }, ws, dys), 1e-5,
                "dweight");
        }
    }
    EXPECT_THROW(ops::rms_norm(stream, zeros({2, 4}), zeros({5}), kEps, zeros({2, 4})), InvalidArgument);
    EXPECT_THROW(ops::rms_norm(stream, zeros({2, 4}), zeros({4}), kEps, zeros({4, 2})), InvalidArgument);
    EXPECT_THROW(ops::rms_norm(stream, zeros({2, 4}), zeros({4}), kEps, zeros({2, 4}), zeros({3})),
                 InvalidArgument);
}

TEST(RmsNorm, BehindASum) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    for (const auto& [dtype, of_update] : {std::pair{DType::float32, DType::float32},
                                           {DType::bfloat16, DType::bfloat16},
                                           {DType::bfloat16, DType::float32}}) {
        for (const std::int64_t dim : {1, 17, 576}) {
            const Tensor x = random_tensor(generator, {5, dim}, dtype), sum = x.clone("test");
            const Tensor update = random_tensor(generator, {5, dim}, of_update);
            const Tensor weight = random_tensor(generator, {dim}, dtype);
            const Tensor wanted = zeros({5, dim}, dtype), got = zeros({5, dim}, dtype);
            ops::add(stream, sum, update);
            ops::rms_norm(stream, sum, weight, kEps, wanted);
            ops::add_rms_norm(stream, x, update, weight, kEps, got);
            expect_same_bits(x, sum, "x + update");
            expect_same_bits(got, wanted, "its norm");
        }
    }
    EXPECT_THROW(ops::add_rms_norm(stream, zeros({2, 4}), zeros({2, 5}), zeros({4}), kEps, zeros({2, 4})),
                 InvalidArgument);
    EXPECT_THROW(ops::add_rms_norm(stream, zeros({2, 4}), zeros({2, 4}), zeros({5}), kEps, zeros({2, 4})),
                 InvalidArgument);
}

// A token's bits do not depend on which positions were asked for before.
TEST(Rope, ATableThatHasGrownIsTheSame) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    const std::vector<std::int32_t> positions = {0, 255, 256, 8191, 8192, 9000, 16384, 40000, 131071, 131072};
    const auto count = static_cast<std::int64_t>(positions.size());
    const Tensor x = random_tensor(generator, {count, 2, 8}, DType::float32);
    const Tensor at_once = x.clone("test"), grown = x.clone("test");
    ops::rope(stream, at_once, positions, testing::rope_table(1e4, 8));
    const ops::RopeTable table = testing::rope_table(1e4, 8);
    for (std::int64_t i = 0; i < count; ++i)
        ops::rope(stream, grown.rows(i, 1), std::span(positions).subspan(static_cast<std::size_t>(i), 1),
                  table);
    expect_same_bits(grown, at_once, "grown");
}

TEST(Rope, RotatesHalvesAndBack) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(2);
    const double theta = 10000.0;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t dim : {2, 6, 64}) {
            const std::vector<std::int32_t> positions = {0, 1, 7, 300, 5000, 200000};
            const ops::RopeTable table = testing::rope_table(theta, dim);
            const Tensor x = random_tensor(generator, {6, 3, dim}, dtype);
            const Tensor y = x.clone("test");
            ops::rope(stream, y, positions, table);
            const Doubles in = to_doubles(x);
            Doubles wanted(in.size());
            const auto half = static_cast<std::size_t>(dim / 2);
            for (std::size_t token = 0; token < 6; ++token) {
                for (std::size_t head = 0; head < 3; ++head) {
                    for (std::size_t i = 0; i < half; ++i) {
                        const auto frequency = static_cast<float>(
                            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
                        const double angle =
                            static_cast<double>(static_cast<float>(positions[token]) * frequency);
                        const std::size_t at = (token * 3 + head) * static_cast<std::size_t>(dim) + i;
                        wanted[at] = in[at] * std::cos(angle) - in[at + half] * std::sin(angle);
                        wanted[at + half] = in[at + half] * std::cos(angle) + in[at] * std::sin(angle);
                    }
                }
            }
            expect_close(y, wanted, 1e-5, "rope");
            ops::rope_backward(stream, y, positions, table);  // a rotation: its transpose undoes it
            expect_close(y, in, dtype == DType::float32 ? 1e-5 : 1e-2, "rope_backward");
            const Tensor one = x.clone("test").rows(3, 1);
            ops::rope(stream, one, std::vector<std::int32_t>{300}, table);
            const Tensor all = x.clone("test");
            ops::rope(stream, all, positions, table);
            expect_same_bits(one, all.rows(3, 1), "a token alone");
        }
    }
    const ops::RopeTable four = testing::rope_table(theta, 4);
    const std::vector<std::int32_t> start{0};
    EXPECT_THROW(ops::rope(stream, zeros({1, 1, 3}), start, four), InvalidArgument);
    EXPECT_THROW(ops::rope(stream, zeros({2, 1, 4}), start, four), InvalidArgument);
    EXPECT_THROW(ops::rope(stream, zeros({1, 1, 4}), std::vector<std::int32_t>{-1}, four), InvalidArgument);
    EXPECT_THROW(ops::rope(stream, zeros({1, 1, 6}), start, four), InvalidArgument);
    EXPECT_THROW(ops::rope(stream, zeros({1, 1, 4}), start, ops::RopeTable()), InvalidArgument);
    EXPECT_THROW(ops::RopeTable(std::vector<float>{}), InvalidArgument);
}

// The attention factor scales both rotations, and so the dot product of a query and a key by its square.
TEST(Rope, AttentionFactorScalesTheRotation) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    const std::vector<float> frequencies{1.0f, 0.25f, 0.01f};
    const ops::RopeTable plain(frequencies), scaled(frequencies, 1.5f);
    const std::vector<std::int32_t> positions{0, 1, 700, 150000};
    const Tensor x = random_tensor(generator, {4, 2, 6});
    const Tensor y = x.clone("test"), z = x.clone("test");
    ops::rope(stream, y, positions, plain);
    ops::rope(stream, z, positions, scaled);
    Doubles wanted = to_doubles(y);
    for (double& value : wanted) value *= 1.5;
    expect_close(z, wanted, 1e-6, "rope");
    ops::rope_backward(stream, z, positions, scaled);
    wanted = to_doubles(x);
    for (double& value : wanted) value *= 2.25;
    expect_close(z, wanted, 1e-5, "rope_backward");
}

Doubles naive_swiglu(const Doubles& gate, const Doubles& up) {
    Doubles y(gate.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
    return y;
}

TEST(SwiGlu, ForwardAndBackward) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(3);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t count : {1, 63, 1024, 2500}) {
            const Tensor gate = random_tensor(generator, {count}, dtype, 4.0f);
            const Tensor up = random_tensor(generator, {count}, dtype);
            const Tensor dy = random_tensor(generator, {count}, dtype);
            const Tensor y = zeros({count}, dtype), dgate = zeros({count}), dup = zeros({count});
            ops::swiglu(stream, gate, up, y);
            ops::swiglu_backward(stream, dy, gate, up, dgate, dup);
            const Doubles g = to_doubles(gate), u = to_doubles(up), d = to_doubles(dy);
            expect_close(y, naive_swiglu(g, u), 1e-5, "y");
            Doubles wanted_gate(g.size()), wanted_up(g.size());
            for (std::size_t i = 0; i < g.size(); ++i) {
                const double h = 1e-5;
                wanted_gate[i] = d[i] *
                                 (naive_swiglu({g[i] + h}, {u[i]})[0] - naive_swiglu({g[i] - h}, {u[i]})[0]) /
                                 (2 * h);
                wanted_up[i] = d[i] * naive_swiglu({g[i]}, {1.0})[0];
            }
            expect_close(dgate, wanted_gate, 1e-5, "dgate", 1e-7);
            expect_close(dup, wanted_up, 1e-5, "dup");
        }
    }
    const Tensor extreme = Tensor::from<float>(std::vector<float>{-1e4f, -90.0f, 0.0f, 90.0f, 1e4f}, {5});
    const Tensor y = zeros({5});
    ops::swiglu(stream, extreme, extreme, y);
    for (const float value : y.values<float>()) EXPECT_TRUE(std::isfinite(value)) << value;
    EXPECT_THROW(ops::swiglu(stream, zeros({4}), zeros({3}), zeros({4})), InvalidArgument);
}

TEST(Embedding, LooksUpAndAddsBack) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(4);
    const std::vector<std::int32_t> ids = {3, 0, 3, 6};
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor table = random_tensor(generator, {7, 5}, dtype);
        const Tensor y = zeros({4, 5}, dtype);
        ops::embedding(stream, table, ids, y);
        for (std::int64_t i = 0; i < 4; ++i) {
            expect_same_bits(y.rows(i, 1), table.rows(ids[static_cast<std::size_t>(i)], 1), "row");
        }
        const Tensor dtable = random_tensor(generator, {7, 5});
        Doubles wanted = to_doubles(dtable);
        const Doubles dy = to_doubles(y);
        for (std::size_t i = 0; i < 20; ++i)
            wanted[static_cast<std::size_t>(ids[i / 5]) * 5 + i % 5] += dy[i];
        ops::embedding_backward(stream, y, ids, dtable);
        expect_close(dtable, wanted, 1e-6, "dtable");
    }
    const Tensor table = zeros({7, 5}), y = zeros({1, 5});
    EXPECT_THROW(ops::embedding(stream, table, std::vector<std::int32_t>{7}, y), InvalidArgument);
    EXPECT_THROW(ops::embedding(stream, table, std::vector<std::int32_t>{-2}, y), InvalidArgument);
    EXPECT_THROW(ops::embedding(stream, table, std::vector<std::int32_t>{1, 2}, y), InvalidArgument);
}

TEST(Elementwise, CastRoundsLikeTheClass) {
    Stream stream = Stream::make_inline();
    std::vector<float> values;
    for (std::uint32_t high = 0; high < 65536; ++high) {
        for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            values.push_back(std::bit_cast<float>((high << 16) | low));
        }
    }
    const auto count = static_cast<std::int64_t>(values.size());
    const Tensor from = Tensor::from<float>(values, {count});
    const Tensor to = zeros({count}, DType::bfloat16);
    ops::cast(stream, from, to);
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(to.data<bfloat16>()[i].bits, bfloat16(values[i]).bits)
            << std::bit_cast<std::uint32_t>(values[i]);
    }
    const Tensor back = zeros({count});
    ops::cast(stream, to, back);
    for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back.data<float>()[i]),
                  static_cast<std::uint32_t>(to.data<bfloat16>()[i].bits) << 16);
    }
}

TEST(Elementwise, AddScaleAndZero) {
    Stream stream = Stream::make_inline();
    std::mt19937 generator(5);
    const std::int64_t count = 9001;
    for (const DType left : {DType::float32, DType::bfloat16}) {
        for (const DType right : {DType::float32, DType::bfloat16}) {
            const Tensor a = random_tensor(generator, {count}, left);
            const Tensor b = random_tensor(generator, {count}, right);
            Doubles wanted = to_doubles(a);
            const Doubles added = to_doubles(b);
            for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += added[i];
            ops::add(stream, a, b);
            expect_close(a, wanted, 1e-6, "add");
        }
    }
    const Tensor a = random_tensor(generator, {count});
    Doubles wanted = to_doubles(a);
    for (double& value : wanted) value *= 0.5;
    ops::scale(stream, a, 0.5f);
    expect_close(a, wanted, 0.0, "scale");
    ops::fill_zero(stream, a);
    expect_same_bits(a, zeros({count}), "zero");
    EXPECT_THROW(ops::cast(stream, zeros({3}), zeros({4})), InvalidArgument);
    EXPECT_THROW(ops::cast(stream, zeros({3}), zeros({3}, DType::int32)), InvalidArgument);
    EXPECT_THROW(ops::add(stream, zeros({3}), zeros({4})), InvalidArgument);
    EXPECT_THROW(ops::scale(stream, zeros({3}, DType::bfloat16), 2.0f), InvalidArgument);
}

}  // namespace
}  // namespace tandem
