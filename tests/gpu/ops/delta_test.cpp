// Deltas: the choice of the encoding, its bytes and digests are the CPU's, and it brings the old copy up to
// date.
#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/ops/delta.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

using ops::DeltaCodec;
using ops::DeltaResult;
using ops::DeltaSource;

struct DeltaCase {
    std::int64_t rows, columns, gap;  // gap: columns that lie between rows
    double changed;
};

TEST(GpuDelta, EncodingsAreTheCpus) {
    const std::vector<DeltaCase> cases = {{0, 5, 0, 0},          {1, 1, 0, 1},         {1, 40, 0, 0},
                                          {1, 5000, 0, 0.001},   {1, 5000, 0, 0.3},    {3, 1000, 8, 0.95},
                                          {7, 333, 5, 0.05},     {2, 9000, 0, 0.0001}, {1, 2049, 0, 1},
                                          {1, 2200000, 0, 1e-5}, {3, 8008, 8, 0.01}};
    std::vector<int> met(4);
    for (const DType from : {DType::float32, DType::bfloat16}) {
        for (const DType to : {DType::float32, DType::bfloat16}) {
            for (const DeltaCase& c : cases) {
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

// What lies on the device after `encoded` was laid over `old`, or the message of the refusal.
std::string applied(ops::DeltaCodec codec, const std::vector<std::byte>& encoded, std::size_t width,
                    std::int64_t rows, std::int64_t row_elements, std::size_t stride, Tensor& target,
                    bool on_device) {
    const auto bytes = static_cast<std::int64_t>(encoded.size());
    Tensor from = Tensor::zeros({bytes + 1}, DType::uint8, "test");  // an encoding may be empty
    std::copy(encoded.begin(), encoded.end(), from.raw());
    const Tensor there = on_device ? to_tested(from) : from, to = on_device ? to_tested(target) : target;
    std::string refusal;
    try {
        const ConstSpan span{there.raw(), encoded.size()};
        if (on_device) {
            tested::delta_apply(tested_stream(), codec, span, width, rows, row_elements, to.raw(), stride);
        } else {
            ops::delta_apply(codec, span, width, rows, row_elements, to.raw(), stride);
        }
    } catch (const ProtocolError& error) {
        refusal = error.what();
    }
    if (on_device) target = to_host(to);
    return refusal;
}

// Encodings as delta_encode makes them, and the same with bytes turned, cut off or added: the bytes and the
// refusals are the CPU's, and what is refused changes nothing.
TEST(GpuDelta, AppliesAndRefusesAsTheCpu) {
    std::mt19937_64 random(5);
    int refused = 0, taken = 0;
    for (const std::size_t width : {2u, 4u}) {
        for (const auto& [rows, columns, gap, changed] :
             {DeltaCase{1, 1, 0, 1}, DeltaCase{3, 700, 8, 0.01}, DeltaCase{5, 333, 3, 0.2},
              DeltaCase{1, 40000, 0, 0.0005}, DeltaCase{2, 9001, 7, 0.3}, DeltaCase{4, 100, 0, 1},
              DeltaCase{2, 50, 0, 0}}) {
            const std::int64_t elements = rows * columns;
            const DType dtype = width == 2 ? DType::bfloat16 : DType::float32;
            Tensor base = Tensor::zeros({elements}, dtype, "test");
            Tensor fresh = Tensor::zeros({elements}, dtype, "test");
            for (std::int64_t i = 0; i < elements; ++i) {
                if (std::uniform_real_distribution<double>(0, 1)(random) >= changed) continue;
                fresh.raw()[static_cast<std::size_t>(i) * width] = static_cast<std::byte>(1 + random() % 255);
            }
            std::vector<std::byte> encoded(base.bytes());
            const DeltaResult result = ops::delta_encode({fresh.raw(), 0, 1, elements, dtype, dtype},
                                                         base.span(), {encoded.data(), encoded.size()});
            encoded.resize(result.bytes);
            const auto stride = static_cast<std::size_t>(columns + gap) * width;
            for (int turn = 0; turn < 12; ++turn) {
                std::vector<std::byte> bytes = encoded;
                DeltaCodec codec = result.codec;
                if (turn > 0 && !bytes.empty()) {
                    const std::size_t head =
                        turn % 2 == 0 ? bytes.size() : std::min<std::size_t>(9, bytes.size());
                    if (turn < 9) bytes[random() % head] ^= static_cast<std::byte>(1u << random() % 8);
                    if (turn == 9) bytes.pop_back();
                    if (turn == 10) bytes.push_back(std::byte{255});
                }
                if (turn == 11) codec = static_cast<DeltaCodec>((static_cast<unsigned>(codec) + 1) % 4);
                Tensor here = Tensor::zeros({rows * static_cast<std::int64_t>(stride)}, DType::uint8, "test");
                std::fill_n(here.raw(), here.bytes(), std::byte{0x5a});
                Tensor there = here.clone("test");
                const Tensor before = here.clone("test");
                const std::string wanted = applied(codec, bytes, width, rows, columns, stride, here, false);
                const std::string found = applied(codec, bytes, width, rows, columns, stride, there, true);
                ASSERT_EQ(found, wanted);
                ASSERT_EQ(std::memcmp(there.raw(), here.raw(), here.bytes()), 0);
                if (!wanted.empty()) {
                    ASSERT_EQ(std::memcmp(there.raw(), before.raw(), here.bytes()), 0);
                }
                ++(wanted.empty() ? taken : refused);
            }
        }
    }
    EXPECT_GT(refused, 40);
    EXPECT_GT(taken, 40);
}

}  // namespace
}  // namespace tandem::tests
