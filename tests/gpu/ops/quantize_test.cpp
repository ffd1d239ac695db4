// Quantised boxes of a weight: scales, bytes and digests are the CPU's.
#include <array>
#include <limits>

#include "common/ops/quantize.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::Quantization;
using ops::ScaleGrid;
using ops::WeightBox;

TEST(GpuQuantize, BytesAndScalesAreTheCpus) {
    const std::int64_t rows = 140, columns = 300;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const Tensor weight = with_dtype(random({rows, columns}, 1), dtype);
        const Tensor there = to_tested(weight);
        for (const Quantization kind : {Quantization::fp8_block, Quantization::int8_channel}) {
            const ScaleGrid grid{kind, rows, columns};
            const auto cells = static_cast<std::size_t>(grid.scale_rows() * grid.scale_columns());
            // The whole, ragged parts, a row, a column, nothing.
            for (const auto& [row, column, height, width] :
                 std::vector<std::array<std::int64_t, 4>>{{0, 0, rows, columns},
                                                          {3, 120, 137, 24},
                                                          {127, 5, 2, 290},
                                                          {139, 0, 1, 300},
                                                          {0, 299, 140, 1},
                                                          {5, 8, 0, 4}}) {
                SCOPED_TRACE(fmt::format("{}×{} at ({}, {})", height, width, row, column));
                const std::size_t size = dtype_size(dtype);
                const auto box = [&](const Tensor& all) {
                    return WeightBox{all.raw() + static_cast<std::size_t>(row * columns + column) * size,
                                     static_cast<std::size_t>(columns) * size,
                                     dtype,
                                     row,
                                     column,
                                     height,
                                     width};
                };
                std::vector<float> wanted(cells, 0.01f), found(cells, 0.01f);
                ops::accumulate_amax(box(weight), grid, wanted);
                tested::accumulate_amax(tested_stream(), box(there), grid, found);
                ASSERT_EQ(found, wanted);
                ops::amax_to_scale(grid, wanted);
                Tensor to = Tensor::empty({height * width}, DType::uint8, "test");
                const Tensor to_there = to_tested(to);
                const ops::Checksum sum = ops::quantize(box(weight), grid, wanted, to.span());
                const ops::Checksum sum_there =
                    tested::quantize(tested_stream(), box(there), grid, wanted, to_there.span());
                EXPECT_EQ(to_host(to_there).to_vector<std::uint8_t>(), to.to_vector<std::uint8_t>());
                EXPECT_EQ(sum_there, sum);
            }
        }
    }
}

TEST(GpuQuantize, NanIsRefused) {
    Tensor weight = random({4, 8}, 1);
    weight.values<float>()[13] = std::numeric_limits<float>::quiet_NaN();
    const Tensor there = to_tested(weight);
    std::vector<float> amax(1);
    EXPECT_THROW(tested::accumulate_amax(tested_stream(), {there.raw(), 32, DType::float32, 0, 0, 4, 8},
                                         {Quantization::fp8_block, 4, 8}, amax),
                 InvalidArgument);
}

}  // namespace
}  // namespace tandem::tests
