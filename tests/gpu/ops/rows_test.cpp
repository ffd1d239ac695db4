// Elementwise ops and those that work row by row, over awkward sizes.
#include <cmath>

#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

const std::vector<std::int64_t> kCounts = {0, 1, 7, 8, 9, 255, 2049, 5000};

struct RowShape {
    std::int64_t rows, dim;
};
const std::vector<RowShape> kRows = {{0, 8},     {1, 3},    {3, 7},    {5, 64},   {9, 128},  {2, 1000},
                                     {17, 1024}, {3, 1032}, {3, 2056}, {2, 3001}, {2, 4104}, {2, 8200}};

TEST(GpuRows, Cast) {
    for (const std::int64_t count : kCounts) {
        const Tensor wide = random({count}, 1);
        const Tensor narrow = with_dtype(wide, DType::bfloat16);
        Tensor to = to_tested(with_dtype(zeros({count}), DType::bfloat16));
        tested::cast(tested_stream(), to_tested(wide), to);
        expect_close(to_host(to), narrow, 0.0);
        Tensor back = to_tested(zeros({count}));
        tested::cast(tested_stream(), to, back);
        expect_close(to_host(back), with_dtype(narrow, DType::float32), 0.0);
        Tensor same = to_tested(zeros({count}));
        tested::cast(tested_stream(), back, same);
        expect_close(to_host(same), with_dtype(narrow, DType::float32), 0.0);
    }
}

TEST(GpuRows, CastOfHalves) {
    Tensor half = Tensor::empty({1 << 16}, DType::float16, "test");
    for (std::int64_t i = 0; i < half.numel(); ++i)
        half.values<float16>()[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        Tensor to = to_tested(with_dtype(zeros({1 << 16}), dtype));
        tested::cast(tested_stream(), to_tested(half), to);
        expect_close(to_host(to), with_dtype(half, dtype), 0.0);
    }
}

TEST(GpuRows, AddScaleFill) {
    for (const std::int64_t count : kCounts) {
        compare({{random({count}, 1)}, {random({count}, 2)}}, BOTH(add(s, t[0], t[1])));
        compare({{random({count}, 1), true}, {random({count}, 2)}}, BOTH(add(s, t[0], t[1])));
        compare({{random({count}, 3), true}}, BOTH(scale(s, t[0], 0.37f)));
        compare({{random({count}, 4)}}, BOTH(fill_zero(s, t[0])));
    }
}

TEST(GpuRows, ViewsThatStartAnywhere) {
    const Tensor a = random({64}, 1), b = random({64}, 2);
    for (std::int64_t start = 0; start < 9; ++start) {
        compare(
            {{a.rows(0, 40)}, {b.rows(0, 40)}},
            [&](Stream& s, auto& t) { ops::add(s, t[0].rows(start, 21), t[1].rows(start + 3, 21)); },
            [&](Stream& s, auto& t) { tested::add(s, t[0].rows(start, 21), t[1].rows(start + 3, 21)); });
    }
}

TEST(GpuRows, Swiglu) {
    for (const std::int64_t count : kCounts) {
        const Tensor gate = random({count}, 1, 4.0f), up = random({count}, 2), dy = random({count}, 3);
        compare({{gate}, {up}, {zeros({count})}}, BOTH(swiglu(s, t[0], t[1], t[2])));
        compare({{dy}, {gate}, {up}, {zeros({count})}, {zeros({count})}},
                BOTH(swiglu_backward(s, t[0], t[1], t[2], t[3], t[4])));
    }
}

TEST(GpuRows, SwigluFarOut) {
    const std::vector<float> far = {-200.0f, -88.0f, -87.0f, 0.0f, 87.0f, 200.0f, 1e-30f, -INFINITY};
    const Tensor gate = Tensor::from<float>(far, {8});
    const Tensor up = random({8}, 1);
    compare({{gate}, {up}, {zeros({8})}}, BOTH(swiglu(s, t[0], t[1], t[2])));
}

TEST(GpuRows, RmsNorm) {
    for (const auto& [rows, dim] : kRows) {
        SCOPED_TRACE(dim);
        const Tensor x = random({rows, dim}, 1, 3.0f), weight = random({dim}, 2);
        compare({{x}, {weight}, {zeros({rows, dim})}, {zeros({rows}), true}},
                BOTH(rms_norm(s, t[0], t[1], 1e-6f, t[2], t[3])));
        compare({{x}, {weight}, {zeros({rows, dim})}}, BOTH(rms_norm(s, t[0], t[1], 1e-6f, t[2], Tensor())));
        compare({{x}, {random({rows, dim}, 3)}, {weight}, {zeros({rows, dim})}},
                BOTH(add_rms_norm(s, t[0], t[1], t[2], 1e-6f, t[3])));
    }
}

TEST(GpuRows, RmsNormBackward) {
    std::vector<RowShape> shapes = kRows;
    shapes.push_back({1100, 48});  // more rows than take part side by side
    for (const auto& [rows, dim] : shapes) {
        SCOPED_TRACE(dim);
        const Tensor x = random({rows, dim}, 1, 3.0f), weight = random({dim}, 2), dy = random({rows, dim}, 3);
        Tensor rstd = zeros({rows});
        Tensor y = zeros({rows, dim});
        Stream cpu = Stream::make_inline();
        ops::rms_norm(cpu, x, weight, 1e-6f, y, rstd);
        for (const bool accumulate : {false, true}) {
            compare({{dy}, {x}, {weight}, {rstd, true}, {random({rows, dim}, 4)}, {random({dim}, 5), true}},
                    BOTH(rms_norm_backward(s, t[0], t[1], t[2], t[3], t[4], t[5], accumulate)));
        }
    }
}

TEST(GpuRows, Rope) {
    for (const std::int64_t half : {1, 3, 8, 32, 64}) {
        std::vector<float> frequencies;
        for (std::int64_t i = 0; i < half; ++i)
            frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(half)));
        const ops::RopeTable table(frequencies, 1.1f);
        const std::vector<std::int32_t> at = {0, 1, 5, 700, 131072 + 5, 3, 255, 256};
        for (const std::int64_t heads : {1, 3}) {
            const Tensor x = random({8, heads, 2 * half}, 1);
            compare({{x}}, BOTH(rope(s, t[0], at, table)));
            compare({{x}}, BOTH(rope_backward(s, t[0], at, table)));
        }
        compare({{zeros({0, 2, 2 * half})}}, BOTH(rope(s, t[0], std::vector<std::int32_t>{}, table)));
    }
}

TEST(GpuRows, Embedding) {
    for (const std::int64_t dim : {1, 7, 8, 96}) {
        for (const std::int64_t tokens : {0, 1, 33, 300}) {
            std::vector<std::int32_t> ids = random_ids(tokens, 20, 7);
            for (std::int32_t& id : ids) --id;  // -1: elsewhere
            const Tensor table = random({19, dim}, 1);
            compare({{table}, {random({tokens, dim}, 3)}}, BOTH(embedding(s, t[0], ids, t[1])));
            const Tensor there = to_tested(Tensor::from<std::int32_t>(ids, {tokens}));
            compare(
                {{table}, {random({tokens, dim}, 3)}},
                [&](Stream& s, auto& t) { ops::embedding(s, t[0], ids, t[1]); },
                [&](Stream& s, auto& t) { tested::embedding(s, t[0], there, t[1]); });
            compare({{random({tokens, dim}, 2)}, {table, true}},
                    BOTH(embedding_backward(s, t[0], ids, t[1])));
        }
    }
}

TEST(GpuRows, EmbeddingsOfNoRows) {
    const std::vector<std::int32_t> ids(5, -1);
    for (const std::int64_t dim : {7, 96}) {
        compare({{zeros({0, dim})}, {random({5, dim}, 3)}}, BOTH(embedding(s, t[0], ids, t[1])));
        compare({{random({5, dim}, 2)}, {zeros({0, dim}), true}},
                BOTH(embedding_backward(s, t[0], ids, t[1])));
    }
}

TEST(GpuRows, BiasGradient) {
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 5}, {3, 0}, {1, 1}, {3, 9}, {257, 40}, {600, 1030}}) {
        compare({{random({rows, columns}, 1)}, {random({columns}, 2), true}},
                BOTH(linear_backward_bias(s, t[0], t[1])));
    }
}

TEST(GpuRows, TheSameBitsEveryTime) {
    const std::int64_t rows = 700, dim = 96;
    const Tensor x = random({rows, dim}, 1), weight = random({dim}, 2), rstd = random({rows}, 3);
    std::vector<Tensor> results;
    for (int run = 0; run < 2; ++run) {
        Tensor dweight = to_tested(zeros({dim}));
        Tensor dx = to_tested(zeros({rows, dim}));
        tested::rms_norm_backward(tested_stream(), to_tested(x), to_tested(x), to_tested(weight),
                                  to_tested(rstd), dx, dweight, false);
        results.push_back(to_host(dweight));
    }
    expect_close(results[0], results[1], 0.0);
}

}  // namespace
}  // namespace tandem::tests
