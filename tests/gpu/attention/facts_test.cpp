// What the kernels rest on and the host imitates: the tensor core's arithmetic bit by bit, who gets what from ldmatrix, 2^x.
// First of all on a GPU: where one of these is red, no other figure of attention means anything.
#include "tests/gpu/attention/facts.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "common/device/devices.h"
#include "tests/support/tensor_core.h"

namespace tandem::tests {
namespace {

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

    Stream stream = Stream::make_compute({DeviceType::cuda, 0});
    std::mt19937 random{7};
};

struct Products {
    std::vector<bfloat16> a, b;
    std::vector<float> c;
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

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint32_t> result;
    for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
    return result;
}

TEST_F(AttentionFacts, ProductsAreTheModelsBitByBit) {
    for (const int spread : {0, 3, 12, 60}) {
        SCOPED_TRACE(spread);
        constexpr std::int64_t kCount = 2048;
        const Products p = products(random, kCount, spread);
        const Tensor out = Tensor::empty(stream, {kCount, 16, 8}, DType::float32, "test");
        products_on_gpu(stream, there(p.a, {kCount, 16, 16}), there(p.b, {kCount, 8, 16}),
                        there(p.c, out.shape()), out);
        const std::vector<std::uint32_t> found = bits_of(out.to_host(stream).to_vector<float>()),
                                         wanted = bits_of(on_host(p));
        std::size_t differ = 0;
        for (std::size_t i = 0; i < found.size(); ++i) differ += std::size_t{found[i] != wanted[i]};
        EXPECT_EQ(differ, 0u) << "of " << found.size();
    }
}

TEST_F(AttentionFacts, ZerosAddNothing) {
    Products p{std::vector<bfloat16>(256), std::vector<bfloat16>(128), {}};
    for (const float c : {0.0f, -0.0f, 1e-40f, -1e-40f, 1.0f, 3.0e38f, -7.25f}) p.c.push_back(c);
    p.c.resize(128, 0.5f);
    const Tensor out = Tensor::empty(stream, {1, 16, 8}, DType::float32, "test");
    products_on_gpu(stream, there(p.a, {1, 16, 16}), there(p.b, {1, 8, 16}), there(p.c, {1, 16, 8}), out);
    EXPECT_EQ(bits_of(out.to_host(stream).to_vector<float>()), bits_of(on_host(p)));
}

// A zero has the exponent of the smallest normal: beside 2^126 its product's is 0, and c loses what lies below 2^-25.
TEST_F(AttentionFacts, ZerosBesideLargeNumbersCutSmallOnes) {
    Products p{std::vector<bfloat16>(256), std::vector<bfloat16>(128), {}};
    for (std::size_t column = 0; column < 8; ++column) {
        for (std::size_t k = 0; k < 16; ++k)
            p.b[16 * column + k] = bfloat16(std::ldexp(1.0f, 18 * static_cast<int>(column)));
    }
    std::uniform_int_distribution<int> binade(-140, 20);
    std::normal_distribution<float> normal;
    while (p.c.size() < 128) p.c.push_back(std::ldexp(normal(random), binade(random)));
    const Tensor out = Tensor::empty(stream, {1, 16, 8}, DType::float32, "test");
    products_on_gpu(stream, there(p.a, {1, 16, 16}), there(p.b, {1, 8, 16}), there(p.c, {1, 16, 8}), out);
    EXPECT_EQ(bits_of(out.to_host(stream).to_vector<float>()), bits_of(on_host(p)));
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
