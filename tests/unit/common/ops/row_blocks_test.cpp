// Matmuls over libraries that sum in orders of their own: the check notices kernels that break the rule, and
// rows have the same bits nevertheless.
#include "common/ops/cpu/row_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "common/ops/cpu/product.h"
#include "common/ops/cpu/rows.h"
#include "tests/unit/common/ops/fake_products.h"
#include "tests/unit/common/ops/oracle.h"

namespace tandem {
namespace {

using namespace ops::detail;
using testing::FakeProducts;
using testing::random_tensor;
using testing::zeros;

class OverLibrary : public ::testing::TestWithParam<std::size_t> {
  protected:
    const FakeProducts& fake() const { return testing::fake_products()[GetParam()]; }
    const ProductLibrary& library() const { return fake().library; }
};

// c of the first m rows, by the library's own kernel for them.
Tensor own_way(const ProductLibrary& library, const Tensor& x, std::int64_t m, const Tensor& weight,
               WeightLayout layout, int threads) {
    const std::int64_t n = weight.dim(0), k = weight.dim(1);
    const Tensor y = zeros({m, n});
    std::vector<std::byte> packed(std::max(weight.bytes(), library.packed_bytes(n, k, weight.dtype())));
    library.pack({n, k, weight.dtype(), WeightLayout::columns}, k, weight.raw(), packed.data());
    ProductKernel* const kernel =
        product_kernel(library, {m, false, {n, k, weight.dtype(), layout}, false, DType::float32, threads});
    if (kernel == nullptr) return {};
    kernel->run(x.raw(), layout == WeightLayout::packed ? packed.data() : weight.raw(), y.raw());
    return y;
}

TEST_P(OverLibrary, TheFakeBreaksTheRuleAsItSays) {
    std::mt19937 generator(11);
    const Tensor weight = random_tensor(generator, {20, 96}), x = random_tensor(generator, {80, 96});
    const Tensor whole = own_way(library(), x, 80, weight, WeightLayout::columns, 1);
    int different = 0;
    for (const std::int64_t m : {1, 2, 12, 13, 16, 17, 25, 64, 79}) {
        for (const WeightLayout layout : {WeightLayout::columns, WeightLayout::packed}) {
            for (const int threads : {1, 2}) {
                const Tensor part = own_way(library(), x, m, weight, layout, threads);
                if (!part.defined()) continue;
                different += std::memcmp(part.raw(), whole.raw(), part.bytes()) != 0 ? 1 : 0;
            }
        }
    }
    EXPECT_EQ(different == 0, fake().keeps_the_rule) << fake().name;
}

TEST_P(OverLibrary, TheCheckNotices) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        if (dtype == DType::bfloat16 && !fake().has_bfloat16) continue;
        const bool packs = library().packed_bytes(20, 96, dtype) > 0;
        RowBlocks blocks(library(), {20, 96, dtype, packs ? WeightLayout::packed : WeightLayout::columns});
        EXPECT_EQ(blocks.base(), fake().base) << fake().name;
        std::vector<std::int64_t> agree;
        std::copy_if(RowBlocks::kSizes.begin(), RowBlocks::kSizes.end(), std::back_inserter(agree),
                     [&](std::int64_t rows) { return blocks.agrees(rows); });
        EXPECT_EQ(agree, fake().sizes_that_agree) << fake().name;
    }
}

TEST_P(OverLibrary, CutsCoverAllRowsOnce) {
    RowBlocks blocks(library(), {20, 96, DType::float32, WeightLayout::columns});
    for (std::int64_t rows = 1; rows < 200; ++rows) {
        std::int64_t next = 0;
        for (const RowBlock& block : blocks.cut(rows)) {
            EXPECT_EQ(block.begin, next);
            EXPECT_LE(block.used, block.rows);
            next += block.used;
            EXPECT_TRUE(next == rows || block.used == block.rows);
        }
        EXPECT_EQ(next, rows);
    }
}

struct Form {
    DType input, output;
    WeightLayout layout;
    bool bias, accumulate;
};

// Rows [begin, begin + m) of x · weight (+ bias), or added to ones.
Tensor multiplied(const ProductLibrary& library, const Form& form, const Tensor& x, std::int64_t begin,
                  std::int64_t m, const Tensor& b, const Tensor& bias, int threads, bool packed) {
    const bool columns = form.layout == WeightLayout::columns;
    const std::int64_t n = b.dim(columns ? 0 : 1), k = b.dim(columns ? 1 : 0);
    const Tensor c = zeros({m, n}, form.output);
    std::vector<std::byte> copy(packed ? packed_columns_bytes(library, n, k, form.input) : 0);
    if (!copy.empty()) pack_columns(library, n, k, form.input, b.raw(), copy.data());
    EXPECT_TRUE(multiply(library, {.m = m,
                                   .n = n,
                                   .k = k,
                                   .input = form.input,
                                   .output = form.output,
                                   .a = x.rows(begin, m).raw(),
                                   .b = b.raw(),
                                   .layout = form.layout,
                                   .packed = copy.empty() ? nullptr : copy.data(),
                                   .bias = form.bias ? bias.raw() : nullptr,
                                   .c = c.raw(),
                                   .accumulate = form.accumulate,
                                   .threads = threads}));
    return c;
}

TEST_P(OverLibrary, RowsDoNotDependOnTheirCompany) {
    std::mt19937 generator(12);
    const Form forms[] = {
        {DType::float32, DType::float32, WeightLayout::columns, false, false},
        {DType::float32, DType::float32, WeightLayout::columns, true, false},
        {DType::float32, DType::float32, WeightLayout::rows, false, true},
        {DType::bfloat16, DType::float32, WeightLayout::columns, false, false},
        {DType::bfloat16, DType::bfloat16, WeightLayout::columns, true, false},
        {DType::bfloat16, DType::bfloat16, WeightLayout::rows, false, true},
    };
    const std::int64_t shapes[][2] = {{20, 96}, {3, 17}, {1030, 9}};  // the last: two chunks of columns
    for (const auto& [n, k] : shapes) {
        const std::int64_t rows = n == 20 ? 90 : n == 3 ? 70 : 40;
        for (const Form& form : forms) {
            const bool columns = form.layout == WeightLayout::columns;
            const Tensor x = random_tensor(generator, {rows, k}, form.input);
            const Tensor b = random_tensor(generator, columns ? Shape{n, k} : Shape{k, n}, form.input);
            const Tensor bias = random_tensor(generator, {n}, form.input);
            const Tensor whole = multiplied(library(), form, x, 0, rows, b, bias, 1, false);
            for (const std::int64_t m : {1, 2, 3, 7, 12, 17, 25, 64, 65, 85}) {
                const std::int64_t begin = m % 3;
                if (begin + m > rows) continue;
                for (const int threads : {1, 2}) {
                    const bool packed = columns && (m + threads) % 2 == 0;
                    const Tensor part = multiplied(library(), form, x, begin, m, b, bias, threads, packed);
                    testing::expect_same_bits(part, whole.rows(begin, m), "part");
                    if (HasFatalFailure() || HasNonfatalFailure())
                        FAIL() << fake().name << " n " << n << " k " << k << " m " << m << " threads "
                               << threads;
                }
            }
        }
    }
}

Tensor in_float32(const Tensor& tensor) {
    const Tensor wide = zeros(tensor.shape());
    ops::detail::widen(tensor.data<bfloat16>(), wide.data<float>(), tensor.numel());
    return wide;
}

// Without kernels for bfloat16: to the bit what float32 copies of a, b and the bias give, rounded at the end.
TEST_P(OverLibrary, WidensWhatTheLibraryCannotMultiply) {
    if (fake().has_bfloat16) return;
    std::mt19937 generator(13);
    const std::int64_t shapes[][3] = {{37, 20, 96}, {37, 1030, 9}, {37, 130, 2500}, {150, 130, 96}};
    for (const auto& [rows, n, k] : shapes) {
        for (const WeightLayout layout : {WeightLayout::columns, WeightLayout::rows}) {
            const bool columns = layout == WeightLayout::columns;
            const Tensor x = random_tensor(generator, {rows, k}, DType::bfloat16);
            const Tensor b = random_tensor(generator, columns ? Shape{n, k} : Shape{k, n}, DType::bfloat16);
            const Tensor bias = random_tensor(generator, {n}, DType::bfloat16);
            const Form wide_form{DType::float32, DType::float32, layout, true, false};
            const Tensor wide = multiplied(library(), wide_form, in_float32(x), 0, rows, in_float32(b),
                                           in_float32(bias), 1, false);
            const Tensor rounded = zeros({rows, n}, DType::bfloat16);
            narrow(wide.data<float>(), rounded.data<bfloat16>(), wide.numel());
            for (const int threads : {1, 2}) {
                for (const bool packed : {false, columns}) {
                    const Form form{DType::bfloat16, DType::float32, layout, true, false};
                    testing::expect_same_bits(
                        multiplied(library(), form, x, 0, rows, b, bias, threads, packed), wide, "float32");
                    const Form narrow_form{DType::bfloat16, DType::bfloat16, layout, true, false};
                    testing::expect_same_bits(
                        multiplied(library(), narrow_form, x, 0, rows, b, bias, threads, packed), rounded,
                        "bfloat16");
                }
            }
        }
    }
}

// A weight kept in pairs takes the bytes of bfloat16 (padded to blocks of 16 columns and 32 numbers of k), in float32 twice.
TEST_P(OverLibrary, AKeptWeightIsNoLargerThanItsDTypeAsks) {
    constexpr std::int64_t kColumns = 64, kDepth = 96;
    const std::size_t kept = packed_columns_bytes(library(), kColumns, kDepth, DType::bfloat16);
    const bool pairs = library().tile_columns(kColumns, kDepth) > 0;
    const std::size_t each = pairs || fake().has_bfloat16 ? 2 : 4;
    if (kept > 0) {
        EXPECT_EQ(kept, kColumns * kDepth * each) << fake().name;
    }
}

INSTANTIATE_TEST_SUITE_P(Fakes, OverLibrary,
                         ::testing::Range(std::size_t{0}, testing::fake_products().size()));

}  // namespace
}  // namespace tandem
