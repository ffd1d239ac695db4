// What the kernels rest on and the host imitates: the tensor core's arithmetic bit by bit, who gets what from ldmatrix, 2^x.
// First of all on a GPU: where one of these is red, no other figure of attention means anything.
#include "tests/gpu/attention/facts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/device/devices.h"
#include "tests/support/tensor_core.h"

namespace tandem::tests {
namespace {

struct Products {
    std::vector<bfloat16> a, b;
    std::vector<float> c;
};

class AttentionFacts : public ::testing::Test {
  protected:
    void SetUp() override {
        const Device gpu{DeviceType::cuda, 0};
        require_device(gpu);
        const int generation = device_info(gpu).capability / 10;
        fibers::set_tensor_core(generation >= 9 ? fibers::TensorCore::hopper : fibers::TensorCore::ampere);
    }
    template <typename T>
    Tensor there(const std::vector<T>& values, Shape shape) {
        const Tensor host = Tensor::from<T>(values, std::move(shape));
        Tensor result = host.to(stream, stream.device(), "test");
        stream.synchronize();
        return result;
    }

    std::size_t differing(const Products& p);

    Stream stream = Stream::make_compute({DeviceType::cuda, 0});
    std::mt19937 random{7};
};

// Numbers of `spread` binades to either side of 1.
Products products(std::mt19937& random, std::size_t count, int spread) {
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> binade(-spread, spread);
    const auto next = [&] { return std::ldexp(normal(random), binade(random)); };
    Products result;
    for (std::size_t i = 0; i < count * 16 * 16; ++i) result.a.push_back(bfloat16(next()));
    for (std::size_t i = 0; i < count * 8 * 16; ++i) result.b.push_back(bfloat16(next()));
    for (std::size_t i = 0; i < count * 16 * 8; ++i) result.c.push_back(next());
    return result;
}

std::vector<float> on_host(const Products& p) {
    std::vector<float> result = p.c;
    std::uint16_t a[16][16], b[8][16];
    float c[16][8];
    for (std::size_t i = 0; i < p.c.size() / 128; ++i) {
        std::memcpy(a, p.a.data() + i * 256, sizeof a);
        std::memcpy(b, p.b.data() + i * 128, sizeof b);
        std::memcpy(c, result.data() + i * 128, sizeof c);
        fibers::tensor_core_product(a, b, c);
        std::memcpy(result.data() + i * 128, c, sizeof c);
    }
    return result;
}

// The words of c + a b^T that differ between the GPU and the host.
std::size_t AttentionFacts::differing(const Products& p) {
    const auto count = static_cast<std::int64_t>(p.c.size() / 128);
    const Tensor out = Tensor::empty(stream, {count, 16, 8}, DType::float32, "test");
    products_on_gpu(stream, there(p.a, {count, 16, 16}), there(p.b, {count, 8, 16}), there(p.c, out.shape()),
                    out);
    const std::vector<float> found = out.to_host(stream).to_vector<float>(), wanted = on_host(p);
    std::size_t result = 0;
    for (std::size_t i = 0; i < found.size(); ++i)
        result +=
            std::size_t{std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i])};
    return result;
}

TEST_F(AttentionFacts, ProductsAreTheModelsBitByBit) {
    for (const int spread : {0, 3, 12, 60})
        EXPECT_EQ(differing(products(random, 2048, spread)), 0u) << spread;
}

TEST_F(AttentionFacts, ZerosAddNothing) {
    Products p{std::vector<bfloat16>(256), std::vector<bfloat16>(128), {}};
    for (const float c : {0.0f, -0.0f, 1e-40f, -1e-40f, 1.0f, 3.0e38f, -7.25f}) p.c.push_back(c);
    p.c.resize(128, 0.5f);
    EXPECT_EQ(differing(p), 0u);
}

// A zero has no exponent: beside 2^126 it leaves every bit of a c of 2^-140.
TEST_F(AttentionFacts, ZerosBesideLargeNumbersAddNothing) {
    Products p{std::vector<bfloat16>(256), std::vector<bfloat16>(128), {}};
    for (std::size_t i = 0; i < p.b.size(); ++i)
        p.b[i] = bfloat16(std::ldexp(1.0f, 18 * static_cast<int>(i / 16)));
    std::uniform_int_distribution<int> binade(-140, 20);
    std::normal_distribution<float> normal;
    while (p.c.size() < 128) p.c.push_back(std::ldexp(normal(random), binade(random)));
    EXPECT_EQ(on_host(p), p.c);
    EXPECT_EQ(differing(p), 0u);
}

// Where c is zero, the sum is cut as if 2^-133 were in it.
TEST_F(AttentionFacts, SumsBelowTheSmallestNormal) {
    constexpr std::size_t kCount = 1024;
    Products p = products(random, kCount, 8);
    for (bfloat16& value : p.a) value = bfloat16(std::ldexp(float{value}, -74));
    for (bfloat16& value : p.b) value = bfloat16(std::ldexp(float{value}, -74));
    for (std::size_t i = 0; i < p.c.size(); ++i) p.c[i] = i % 2 == 0 ? 0.0f : std::ldexp(p.c[i], -140);
    EXPECT_EQ(differing(p), 0u);
}

// Zeros, denormals and numbers near either end beside each other; in half of the products none is large.
std::vector<bfloat16> numbers_of_every_kind(std::mt19937& random, std::size_t products, std::size_t each) {
    constexpr int kExponents[] = {0, 0, 1, 2, 60, 100, 127, 140, 190};
    std::vector<bfloat16> result;
    for (std::size_t i = 0; i < products; ++i) {
        const int largest = i % 2 == 0 ? 255 : kExponents[random() % std::size(kExponents)];
        for (std::size_t k = 0; k < each; ++k) {
            const int exponent = std::min(kExponents[random() % std::size(kExponents)], largest);
            const auto kept = static_cast<std::uint16_t>(random() % 3 == 0 ? 0x8000u : 0x807fu);
            const auto bits = static_cast<std::uint16_t>(random() & kept);
            result.push_back(std::bit_cast<bfloat16>(
                kept == 0x8000u ? bits : static_cast<std::uint16_t>(bits | exponent << 7)));
        }
    }
    return result;
}

TEST_F(AttentionFacts, NumbersOfEveryKind) {
    constexpr std::size_t kCount = 4096;
    Products p{numbers_of_every_kind(random, kCount, 256), numbers_of_every_kind(random, kCount, 128), {}};
    for (const bfloat16 value : numbers_of_every_kind(random, kCount, 128)) p.c.push_back(float{value});
    EXPECT_EQ(differing(p), 0u);
}

TEST_F(AttentionFacts, MatricesGoWhereTheTablesSay) {
    std::vector<bfloat16> rows;
    for (std::uint16_t i = 0; i < 256; ++i) rows.push_back(std::bit_cast<bfloat16>(i));
    for (const bool transposed : {false, true}) {
        const Tensor out = Tensor::empty(stream, {4, 32, 2}, DType::bfloat16, "test");
        loaded_on_gpu(stream, there(rows, {32, 8}), transposed, out);
        const std::vector<bfloat16> found = out.to_host(stream).to_vector<bfloat16>();
        for (std::size_t i = 0; i < found.size(); ++i) {
            const std::size_t matrix = i / 64, g = i / 2 % 32 / 4, two = 2 * (i / 2 % 4) + i % 2;
            const std::size_t wanted = 64 * matrix + (transposed ? 8 * two + g : 8 * g + two);
            ASSERT_EQ(std::bit_cast<std::uint16_t>(found[i]), wanted)
                << i << (transposed ? ", transposed" : "");
        }
    }
}

TEST_F(AttentionFacts, PowersOfTwo) {
    std::vector<float> x{0.0f, -0.0f, -INFINITY, -1.0f, 1.0f, -200.0f, -126.0f};
    std::uniform_real_distribution<float> uniform(-126.0f, 8.0f);
    while (x.size() < std::size_t{1} << 18) x.push_back(uniform(random));
    const std::int64_t count = static_cast<std::int64_t>(x.size());
    const Tensor y = Tensor::empty(stream, {count}, DType::float32, "test");
    exp2_on_gpu(stream, there(x, {count}), y);
    const std::vector<float> found = y.to_host(stream).to_vector<float>();
    EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 6),
              (std::vector<float>{1.0f, 1.0f, 0.0f, 0.5f, 2.0f, 0.0f}));
    double worst = 0.0;
    for (std::size_t i = 6; i < x.size(); ++i) {
        const double exact = std::exp2(static_cast<double>(x[i]));
        worst = std::max(worst, std::abs(static_cast<double>(found[i]) - exact) / exact);
    }
    EXPECT_LE(worst, std::ldexp(1.0, -22));
    RecordProperty("largest_relative_error", std::to_string(worst));
}

}  // namespace
}  // namespace tandem::tests
