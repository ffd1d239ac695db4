// Log-probabilities and AdamW.
#include <cmath>
#include <cstring>
#include <limits>

#include "common/ops/shared/magnitude.h"
#include "tests/gpu/ops/rig.h"

namespace tandem::tests {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Losses {
    std::vector<float> logprobs, lse, entropies;
    Tensor gradient;
};

std::vector<float> numbers(std::int64_t count, std::uint64_t seed) {
    return random({count}, seed).to_vector<float>();
}

void expect_near(const std::vector<float>& found, const std::vector<float>& wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(found[i] == wanted[i] ||
                    std::abs(found[i] - wanted[i]) <= 1e-5f * std::max(1.0f, std::abs(wanted[i])))
            << "row " << i << " is " << found[i] << ", not " << wanted[i];
}

Tensor logits_of(std::int64_t rows, std::int64_t vocab) {
    Tensor logits = random({rows, vocab}, 1, 5.0f);
    // Some tokens are ruled out, as a sampler's mask does.
    for (std::int64_t i = 1; i < logits.numel(); i += 11)
        logits.values<float>()[static_cast<std::size_t>(i)] = -kInfinity;
    return logits;
}

TEST(GpuLoss, LogProbsEntropyAndGradient) {
    for (const auto& [rows, vocab] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {1, 3}, {3, 7}, {4, 4096}, {2, 4099}, {5, 9000}, {2, 20008}}) {
        for (const float temperature : {1.0f, 0.7f}) {
            SCOPED_TRACE(vocab);
            const Tensor logits = logits_of(rows, vocab);
            std::vector<std::int32_t> targets =
                random_ids(rows, static_cast<std::int32_t>((vocab + 10) / 11), 3);
            for (auto& target : targets) target = target * 11 % static_cast<std::int32_t>(vocab);
            if (rows > 2) targets[1] = -1;
            if (rows > 3) targets[2] = ops::kElsewhere;
            const auto size = static_cast<std::size_t>(rows);
            const std::vector<float> dlogprobs = numbers(rows, 4), dentropies = numbers(rows, 5);
            Losses cpu{std::vector<float>(size), std::vector<float>(size), std::vector<float>(size),
                       logits.clone("t")};
            Losses gpu{std::vector<float>(size), std::vector<float>(size), std::vector<float>(size),
                       to_tested(logits)};
            Stream s = Stream::make_inline();
            ops::token_logprobs(s, logits, targets, temperature, cpu.logprobs, cpu.lse, cpu.entropies);
            tested::token_logprobs(tested_stream(), gpu.gradient, targets, temperature, gpu.logprobs, gpu.lse,
                                   gpu.entropies);
            tested_stream().synchronize();
            expect_near(gpu.logprobs, cpu.logprobs);
            expect_near(gpu.lse, cpu.lse);
            expect_near(gpu.entropies, cpu.entropies);
            for (const bool entropy : {false, true}) {
                const std::vector<float> none;
                Tensor wanted = logits.clone("t");
                Tensor found = to_tested(logits);
                ops::token_logprobs_backward(s, wanted, targets, temperature, cpu.lse, dlogprobs,
                                             entropy ? cpu.entropies : none, entropy ? dentropies : none);
                tested::token_logprobs_backward(tested_stream(), found, targets, temperature, cpu.lse,
                                                dlogprobs, entropy ? cpu.entropies : none,
                                                entropy ? dentropies : none);
                expect_close(to_host(found), wanted);
            }
        }
    }
}

TEST(GpuLoss, ANanReachesTheGradientsOfItsRowAndNoOthers) {
    Tensor logits = random({2, 50}, 7);
    logits.values<float>()[37] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<std::int32_t> targets = {4, 4};
    std::vector<float> logprobs(2), lse(2), entropies(2);
    const Tensor there = to_tested(logits);
    tested::token_logprobs(tested_stream(), there, targets, 1.0f, logprobs, lse, entropies);
    tested_stream().synchronize();
    EXPECT_TRUE(std::isnan(logprobs[0]) && std::isnan(lse[0]) && std::isnan(entropies[0]));
    tested::token_logprobs_backward(tested_stream(), there, targets, 1.0f, lse,
                                    std::vector<float>{1.0f, 1.0f}, entropies,
                                    std::vector<float>{1.0f, 1.0f});
    const std::vector<float> gradient = to_host(there).to_vector<float>();
    for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(std::isnan(gradient[i]), i < 50) << i;
}

TEST(GpuLoss, NoRowsAndNoEntropies) {
    std::vector<float> none;
    tested::token_logprobs(tested_stream(), to_tested(zeros({0, 5})), {}, 1.0f, none, none, none);
    const Tensor logits = random({2, 30}, 1);
    std::vector<float> logprobs(2), lse(2), wanted(2), wanted_lse(2);
    const std::vector<std::int32_t> targets = {3, 29};
    Stream s = Stream::make_inline();
    ops::token_logprobs(s, logits, targets, 1.0f, wanted, wanted_lse);
    tested::token_logprobs(tested_stream(), to_tested(logits), targets, 1.0f, logprobs, lse, {});
    tested_stream().synchronize();
    expect_near(logprobs, wanted);
}

TEST(GpuLoss, RowsWithoutAnyProbability) {
    for (const std::int64_t vocab : {0, 1, 40, 8192}) {
        SCOPED_TRACE(vocab);
        const Tensor logits = zeros({4, vocab});
        for (float& value : logits.values<float>()) value = -kInfinity;
        std::vector<std::int32_t> targets = {-1, ops::kElsewhere, vocab > 0 ? 0 : -1, ops::kElsewhere};
        const std::vector<float> ones(4, 1.0f);
        std::vector<float> logprobs(4), lse(4), entropies(4), wanted(4), wanted_lse(4), wanted_entropies(4);
        Stream s = Stream::make_inline();
        ops::token_logprobs(s, logits, targets, 0.5f, wanted, wanted_lse, wanted_entropies);
        const Tensor there = to_tested(logits);
        tested::token_logprobs(tested_stream(), there, targets, 0.5f, logprobs, lse, entropies);
        tested_stream().synchronize();
        EXPECT_EQ(lse, std::vector<float>(4, -kInfinity));
        EXPECT_EQ(lse, wanted_lse);
        EXPECT_EQ(logprobs, wanted);
        EXPECT_EQ(entropies, wanted_entropies);
        tested::token_logprobs_backward(tested_stream(), there, targets, 0.5f, ones, ones, ones, ones);
        ops::token_logprobs_backward(s, logits, targets, 0.5f, ones, ones, ones, ones);
        expect_close(to_host(there), logits, 0.0);
    }
}

TEST(GpuOptim, AdamW) {
    for (const std::int64_t count : {0, 1, 9, 2048, 5003}) {
        ops::AdamWParams params{.weight_decay = 0.1f, .step = 3, .grad_scale = 0.5f};
        Tensor squares = random({count}, 4);
        for (float& value : squares.values<float>()) value *= value;
        compare(
            {{random({count}, 1)}, {random({count}, 2), true}, {random({count}, 3), true}, {squares, true}},
            BOTH(adamw(s, t[0], t[1], t[2], t[3], params, {}, {})));
    }
}

// The weights that the step leaves, rounded as a cast rounds them.
TEST(GpuOptim, AdamWRoundsBesideItsStep) {
    for (const std::int64_t count : {1, 9, 2048, 5003, 40'000}) {
        SCOPED_TRACE(count);
        const Tensor p = to_tested(random({count}, 1)), g = to_tested(random({count}, 2));
        const Tensor m = to_tested(zeros({count})), v = to_tested(zeros({count}));
        const Tensor rounded = to_tested(with_dtype(random({count}, 3), DType::bfloat16));
        tested::adamw(tested_stream(), p, g, m, v, {.step = 2}, {}, rounded);
        const Tensor wanted = with_dtype(to_host(p), DType::bfloat16), found = to_host(rounded);
        EXPECT_EQ(std::memcmp(found.raw(), wanted.raw(), wanted.bytes()), 0);
        tested::adamw(tested_stream(), p, g, m, v, {.step = 3, .write = false}, {}, rounded);
        EXPECT_EQ(std::memcmp(to_host(rounded).raw(), wanted.raw(), wanted.bytes()), 0) << "a look";
    }
}

Tensor counter() {
    return Tensor::zeros({1}, DType::int64, "t");
}

// What a step makes infinite or NaN is counted, here and there; a step that only looks writes nothing else.
TEST(GpuOptim, AdamWCountsWhatIsNotFinite) {
    for (const std::int64_t count : {1, 9, 2048, 5003, 40'000}) {
        SCOPED_TRACE(count);
        const Tensor p = random({count}, 1), m = zeros({count}), v = zeros({count});
        Tensor g = random({count}, 2);
        p.values<float>()[static_cast<std::size_t>(count / 2)] = kInfinity;
        g.values<float>()[static_cast<std::size_t>(count - 1)] = 1e25f;  // its square is infinite
        const std::int64_t wanted = count == 1 ? 1 : 2;
        for (const bool write : {false, true}) {
            const ops::AdamWParams params{.step = 2, .write = write};
            Tensor here = counter(), there = to_tested(counter());
            const Tensor p2 = to_tested(p), m2 = to_tested(m), v2 = to_tested(v);
            Stream s = Stream::make_inline();
            const Tensor p1 = p.clone("t"), m1 = m.clone("t"), v1 = v.clone("t");
            ops::adamw(s, p1, g, m1, v1, params, here);
            tested::adamw(tested_stream(), p2, to_tested(g), m2, v2, params, there, {});
            EXPECT_EQ(here.values<std::int64_t>()[0], wanted);
            EXPECT_EQ(to_host(there).values<std::int64_t>()[0], wanted);
            const bool same = std::memcmp(p1.raw(), p.raw(), p.bytes()) == 0;
            const Tensor back = to_host(p2), moments = to_host(v2);
            EXPECT_EQ(same, !write || count == 1);
            EXPECT_EQ(std::memcmp(back.raw(), p.raw(), p.bytes()) == 0, same);
            EXPECT_EQ(std::memcmp(moments.raw(), v.raw(), v.bytes()) == 0, !write);
            tested::adamw(tested_stream(), p2, to_tested(g), m2, v2, params, there, {});  // it adds up
            EXPECT_EQ(to_host(there).values<std::int64_t>()[0], 2 * wanted);
        }
    }
}

TEST(GpuOptim, FindsWhatIsNotFinite) {
#if defined(TANDEM_KERNELS_ON_HOST)
    constexpr std::int64_t kMost = 70'001;
#else
    constexpr std::int64_t kMost = 600'001;
#endif
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::float8_e4m3fn}) {
        for (const std::int64_t count : std::initializer_list<std::int64_t>{0, 1, 9, 4096, 5003, kMost}) {
            SCOPED_TRACE(count);
            const Tensor values = Tensor::zeros({count}, dtype, "t");
            const auto find = [&] { return tested::find_non_finite(tested_stream(), to_tested(values)); };
            EXPECT_EQ(find(), ops::NonFinite{});
            if (count == 0) continue;
            const auto put = [&](std::int64_t at, std::uint32_t bits) {  // little-endian: the low bytes
                const std::size_t size = dtype_size(dtype);
                std::memcpy(values.raw() + static_cast<std::size_t>(at) * size, &bits, size);
            };
            const std::uint32_t infinity = ops::shared::infinity_of(dtype);
            const std::uint32_t sign = 1u << (8 * dtype_size(dtype) - 1);
            for (std::int64_t at = 0; at < count; ++at) put(at, (infinity - 1) | (at % 2 == 0 ? sign : 0));
            EXPECT_EQ(find(), ops::NonFinite{}) << "the largest numbers";
            put(count - 1, infinity | sign);
            EXPECT_EQ(find(), (ops::NonFinite{1, count - 1}));
            put(count / 3, infinity);
            EXPECT_EQ(find(), (ops::NonFinite{count == 1 ? 1 : 2, count / 3}));
            EXPECT_EQ(ops::find_non_finite(values), find());
        }
    }
    EXPECT_EQ(ops::find_non_finite(Tensor::zeros({3}, DType::int32, "t")), ops::NonFinite{});
}

// Rounded to a neighbour, the same one as on the CPU but where the two machines' last bits differ.
TEST(GpuOptim, StochasticRounding) {
    const std::int64_t count = 4001;
    const ops::AdamWParams params{
        .lr = 1e-2f, .step = 2, .stochastic_rounding = true, .seed = 99, .first_element = 13};
    const Tensor start = with_dtype(random({count}, 1), DType::bfloat16);
    const Tensor grad = random({count}, 2);
    Tensor cpu = start.clone("t"), gpu = to_tested(start);
    Tensor m = zeros({count}), v = zeros({count});
    Stream s = Stream::make_inline();
    ops::adamw(s, cpu, grad, m, v, params);
    tested::adamw(tested_stream(), gpu, to_tested(grad), to_tested(zeros({count})), to_tested(zeros({count})),
                  params, {}, {});
    const std::vector<double> a = values_of(cpu), b = values_of(to_host(gpu));
    std::int64_t different = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        different += a[i] != b[i];
        ASSERT_NEAR(a[i], b[i], std::abs(a[i]) / 100 + 1e-6);
    }
    EXPECT_LE(different, count / 200);
}

TEST(GpuOptim, SumOfSquares) {
    for (const std::int64_t count : {0, 1, 9, 2048, 300001}) {
        const Tensor values = random({count}, 1);
        double wanted = 0.0;
        for (const double value : values_of(values)) wanted += value * value;
        const Tensor there = to_tested(values);
        const double found = tested::sum_of_squares(tested_stream(), there);
        EXPECT_NEAR(found, wanted, 1e-12 * wanted);
        EXPECT_EQ(tested::sum_of_squares(tested_stream(), there), found);
    }
}

}  // namespace
}  // namespace tandem::tests
