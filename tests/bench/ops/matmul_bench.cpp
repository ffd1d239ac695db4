// oneDNN's rate at 1024^3, then linear layers of SmolLM2-135M at decode and training row counts, with weights that are
// in no cache, as in a decode step, too; and gradients of its weights, which a train step finds in none.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/ops/matmul.h"
#include "common/ops/packed_weight.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {
namespace {

double value_at(const Tensor& tensor, std::int64_t index) {
    return tensor.dtype() == DType::float32 ? static_cast<double>(tensor.data<float>()[index])
                                            : static_cast<double>(float(tensor.data<bfloat16>()[index]));
}

enum class Weight { plain, packed };

double measure(Table& table, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, double against,
               Weight form = Weight::plain) {
    Stream stream = Stream::make_inline();
    const Tensor x = random_tensor({m, k}, dtype, 1);
    const Tensor weight = random_tensor({n, k}, dtype, 2);
    const Tensor y = Tensor::zeros({m, n}, DType::float32, "bench");
    ops::PackedWeight packed;
    form == Weight::packed ? packed.pack(weight, "bench") : packed.point(weight);
    const auto body = [&] { ops::linear(stream, x, packed, {}, y); };
    body();
    for (const std::int64_t column : {std::int64_t{0}, n / 2, n - 1}) {
        double wanted = 0.0;
        for (std::int64_t i = 0; i < k; ++i)
            wanted += value_at(x, (m - 1) * k + i) * value_at(weight, column * k + i);
        const double got = value_at(y, (m - 1) * n + column);
        if (std::abs(got - wanted) > 1e-4 * std::sqrt(static_cast<double>(k))) {
            throw Error(fmt::format("linear is wrong at column {}: {} for {}", column, got, wanted));
        }
    }
    const double ms = median_ms(body);
    const double rate = 2.0 * static_cast<double>(m * n * k) / ms * 1e-6;
    const char* const how = form == Weight::packed ? " packed" : "";
    table.rows.push_back(
        {fmt::format("linear {} [{}, {}] x [{}, {}]^T{}", dtype_name(dtype), m, k, n, k, how), ms, rate,
         "GFLOP/s", against > 0 ? rate / against : 0, against > 0 ? "1024^3" : ""});
    return rate;
}

constexpr std::int64_t kColdBytes = 128 << 20;  // more than the caches hold

void measure_weight_gradient(Table& table, std::int64_t tokens, std::int64_t out, std::int64_t in,
                             bool accumulate) {
    Stream stream = Stream::make_inline();
    const Tensor dy = random_tensor({tokens, out}, DType::bfloat16, 1);
    const Tensor x = random_tensor({tokens, in}, DType::bfloat16, 2);
    std::vector<Tensor> gradients(static_cast<std::size_t>(kColdBytes / (out * in * 4) + 2));
    for (Tensor& gradient : gradients) gradient = Tensor::zeros({out, in}, DType::float32, "bench");
    std::size_t turn = 0;
    const auto body = [&] {
        const Tensor& gradient = gradients[turn++ % gradients.size()];
        ops::linear_backward_weight(stream, dy, x, gradient, accumulate);
    };
    body();
    double wanted = 0;
    for (std::int64_t i = 0; i < tokens; ++i)
        wanted += value_at(dy, (i + 1) * out - 1) * value_at(x, (i + 1) * in - 1);
    const double got = value_at(gradients[0], out * in - 1);
    if (std::abs(got - wanted) > 1e-4 * std::sqrt(static_cast<double>(tokens)))
        throw Error(fmt::format("linear_backward_weight is wrong: {} for {}", got, wanted));
    const double ms = median_ms(body, static_cast<int>(gradients.size()));
    const double rate = 2.0 * static_cast<double>(tokens * out * in) / ms * 1e-6;
    table.rows.push_back({fmt::format("dW bfloat16 [{}, {}]^T x [{}, {}] cold, {}", tokens, out, tokens, in,
                                      accumulate ? "added" : "written"),
                          ms, rate, "GFLOP/s", rate / table.bf16_rate, "1024^3"});
}

// Reading all of it once, in GB/s.
double read_rate(const std::vector<ops::PackedWeight>& weights) {
    std::array<std::uint64_t, 16> sums{};
    std::size_t bytes = 0;
    for (const ops::PackedWeight& weight : weights) bytes += weight.packed().bytes;
    const double ms = median_ms([&] {
        for (const ops::PackedWeight& weight : weights) {
            const auto* const words = reinterpret_cast<const std::uint64_t*>(weight.packed().data);
            for (std::size_t i = 0; i + 16 <= weight.packed().bytes / sizeof(std::uint64_t); i += 16)
                for (std::size_t lane = 0; lane < 16; ++lane) sums[lane] += words[i + lane];
        }
    });
    if (sums[3] == 1) fmt::print(" ");  // the sums are used
    return static_cast<double>(bytes) / ms * 1e-6;
}

// Products whose weight is in no cache, as in a decode step. Light: the weight read once or the product at the rate of
// 1024^3, whichever takes longer.
void measure_cold_weights(Table& table, std::int64_t n, std::int64_t k) {
    Stream stream = Stream::make_inline();
    const Tensor weight = random_tensor({n, k}, DType::bfloat16, 2);
    std::vector<ops::PackedWeight> weights(static_cast<std::size_t>(kColdBytes / (n * k * 2) + 1));
    for (ops::PackedWeight& packed : weights) packed.pack(weight, "bench");
    const double reading = read_rate(weights);
    for (const std::int64_t m : {1, 16, 64}) {
        const Tensor x = random_tensor({m, k}, DType::bfloat16, 1);
        const Tensor y = Tensor::zeros({m, n}, DType::bfloat16, "bench");
        const double ms = median_ms([&] {
                              for (const ops::PackedWeight& packed : weights)
                                  ops::linear(stream, x, packed, {}, y);
                          }) /
                          static_cast<double>(weights.size());
        const double bytes = static_cast<double>(n * k * 2), flop = static_cast<double>(2 * m * n * k);
        const double light = std::max(bytes / reading, flop / table.bf16_rate) * 1e-6;
        table.rows.push_back({fmt::format("linear bfloat16 [{}, {}] x [{}, {}]^T packed, cold", m, k, n, k),
                              ms, bytes / ms * 1e-6, "GB/s", light / ms,
                              fmt::format("{:.1f} GB/s, 1024^3", reading)});
    }
}

}  // namespace

std::function<void()> product_of(DType dtype) {
    const Tensor x = random_tensor({1024, 1024}, dtype, 1), weight = random_tensor({1024, 1024}, dtype, 2);
    const Tensor y = Tensor::zeros({1024, 1024}, DType::float32, "bench");
    return [=] {
        Stream stream = Stream::make_inline();
        ops::linear(stream, x, weight, y);
    };
}

void measure_product_rates(Table& table) {
    if (table.fp32_rate > 0) return;
    table.fp32_rate = measure(table, 1024, 1024, 1024, DType::float32, 0);
    table.bf16_rate = measure(table, 1024, 1024, 1024, DType::bfloat16, 0);
}

void matmul_rows(Table& table) {
    measure_product_rates(table);
    const std::int64_t shapes[][2] = {{576, 576}, {1536, 576}, {576, 1536}, {49152, 576}};
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        const double against = dtype == DType::float32 ? table.fp32_rate : table.bf16_rate;
        for (const auto& [n, k] : shapes) {
            for (const std::int64_t m : {1, 32, 512}) {
                if (n * m >= 20'000'000) continue;
                measure(table, m, n, k, dtype, against);
                if (m < 512) measure(table, m, n, k, dtype, against, Weight::packed);
            }
        }
    }
    for (const auto& [n, k] : shapes) measure_cold_weights(table, n, k);
    for (const auto& [out, in] : shapes) {
        for (const bool accumulate : {true, false}) measure_weight_gradient(table, 512, out, in, accumulate);
    }
}

}  // namespace tandem::bench
