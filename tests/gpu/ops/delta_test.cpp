// Deltas: the choice of the encoding, its bytes and digests are the CPU's, and it brings the old copy up to
// date.
#include <algorithm>
#include <cstring>

#include "common/ops/delta.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::DeltaResult;
using ops::DeltaSource;

struct Case {
    std::int64_t rows, columns, gap;  // gap: columns that lie between rows
    double changed;
};

TEST(GpuDelta, EncodingsAreTheCpus) {
    const std::vector<Case> cases = {{0, 5, 0, 0},        {1, 1, 0, 1},         {1, 40, 0, 0},
                                     {1, 5000, 0, 0.001}, {1, 5000, 0, 0.3},    {3, 1000, 8, 0.95},
                                     {7, 333, 5, 0.05},   {2, 9000, 0, 0.0001}, {1, 2049, 0, 1},
                                     {1, 530000, 0, 1e-5}};
    std::vector<int> met(4);
    for (const DType from : {DType::float32, DType::bfloat16}) {
        for (const DType to : {DType::float32, DType::bfloat16}) {
            for (const Case& c : cases) {
                SCOPED_TRACE(fmt::format("{}×{}, {} changed, {} as {}", c.rows, c.columns, c.changed,
                                         dtype_name(from), dtype_name(to)));
                if (c.columns > 100000 && (from != to || to == DType::float32)) continue;
                const std::int64_t pitch = c.columns + c.gap;
                Tensor source = with_dtype(random({c.rows * pitch}, 1), from);
                const std::int64_t elements = c.rows * c.columns;
                Tensor base = Tensor::empty({elements}, to, "test");
                const auto old = with_dtype(source, to);
                const std::size_t width = dtype_size(to);
                for (std::int64_t row = 0; row < c.rows; ++row) {
                    std::memcpy(base.raw() + static_cast<std::size_t>(row * c.columns) * width,
                                old.raw() + static_cast<std::size_t>(row * pitch) * width,
                                static_cast<std::size_t>(c.columns) * width);
                }
                std::mt19937 engine(3);
                for (std::int64_t i = 0; i < elements; ++i) {
                    if (std::uniform_real_distribution<double>(0, 1)(engine) >= c.changed) continue;
                    base.raw()[static_cast<std::size_t>(i) * width] ^= std::byte{1};
                }
                if (c.changed > 0 && elements > 0)
                    base.raw()[static_cast<std::size_t>(elements - 1) * width] ^= std::byte{2};
                const auto described = [&](const Tensor& tensor) {
                    return DeltaSource{tensor.raw(), static_cast<std::size_t>(pitch) * dtype_size(from),
                                       c.rows,       c.columns,
                                       from,         to};
                };
                Tensor encoded =
                    Tensor::zeros({static_cast<std::int64_t>(base.bytes()) + 16}, DType::uint8, "test");
                const Tensor there = to_tested(source), base_there = to_tested(base),
                             encoded_there = to_tested(encoded);
                const DeltaResult wanted = ops::delta_encode(described(source), base.span(), encoded.span());
                const DeltaResult found = tested::delta_encode(tested_stream(), described(there),
                                                               base_there.span(), encoded_there.span());
                ASSERT_EQ(found.codec, wanted.codec);
                ASSERT_EQ(found.bytes, wanted.bytes);
                EXPECT_EQ(found.changed, wanted.changed);
                EXPECT_EQ(found.content, wanted.content);
                EXPECT_EQ(found.encoded, wanted.encoded);
                const Tensor bytes = to_host(encoded_there);
                EXPECT_EQ(std::memcmp(bytes.raw(), encoded.raw(), wanted.bytes), 0);
                ++met[static_cast<std::size_t>(wanted.codec)];
            }
        }
    }
    EXPECT_TRUE(std::all_of(met.begin(), met.end(), [](int times) { return times > 0; }));
}

}  // namespace
}  // namespace tandem::tests
