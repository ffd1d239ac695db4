#include "trainer/flops.h"

#include <algorithm>
#include <chrono>

#include "common/ops/matmul.h"
#include "common/tensor/tensor.h"

namespace tandem::trainer {

double training_flops(const model::ModelConfig& c, std::span<const std::int64_t> lengths) {
    std::int64_t weights = c.parameter_count();
    if (!c.tie_word_embeddings) weights -= c.vocab_size * c.hidden_size;
    const std::int64_t width = c.num_hidden_layers * c.num_attention_heads * c.head_dim;
    double flops = 0;
    for (const std::int64_t length : lengths) {
        const auto s = static_cast<double>(length);
        flops += 6 * s * (static_cast<double>(weights) + static_cast<double>(width) * s);
    }
    return flops;
}

double measure_product_rate(comm::Communicator& world, Device device, DType dtype) {
    constexpr std::int64_t m = 256, k = 576, n = 1536;
    constexpr int kTries = 4;  // the first warms up
    using Clock = std::chrono::steady_clock;
    Stream stream = Stream::make_compute(device);
    const Tensor a = Tensor::zeros(stream, {m, k}, dtype, "product rate");
    const Tensor b = Tensor::zeros(stream, {n, k}, dtype, "product rate");
    const Tensor c = Tensor::zeros(stream, {m, n}, dtype, "product rate");
    stream.synchronize();
    world.barrier();
    double best = 1e9;
    for (int i = 0; i < kTries; ++i) {
        const auto start = Clock::now();
        ops::linear(stream, a, b, c);
        stream.synchronize();
        if (i > 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
    }
    auto rate = static_cast<float>(2.0 * m * k * n / best);
    world.all_reduce({reinterpret_cast<std::byte*>(&rate), sizeof(rate)}, DType::float32);
    return static_cast<double>(rate);
}

}  // namespace tandem::trainer
