#include "trainer/loop/flops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/model/parameters.h"
#include "common/ops/elementwise.h"
#include "common/ops/matmul.h"
#include "common/stopwatch.h"
#include "common/tensor/tensor.h"
#include "trainer/data/random.h"

namespace tandem::trainer {
namespace {

constexpr const char* kTag = "product rate";
constexpr std::int64_t kMostRandom = std::int64_t{1} << 20;  // values; a matrix repeats them

// Random numbers of [-1, 1): a GPU multiplies zeros at a higher clock.
Tensor random_values(std::int64_t most, DType dtype) {
    Random random(0, Purpose::product_rate);
    std::vector<float> values(static_cast<std::size_t>(std::min(most, kMostRandom)));
    for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
    const Shape shape{static_cast<std::int64_t>(values.size())};
    Stream here = Stream::make_inline();
    const Tensor result = Tensor::empty(shape, dtype, kTag);
    ops::cast(here, Tensor::from<float>(values, shape), result);
    return result;
}

// `some` must live until the stream is past it.
Tensor filled(Stream& stream, Shape shape, const Tensor& some) {
    const Tensor result = Tensor::empty(stream, std::move(shape), some.dtype(), kTag);
    for (std::size_t done = 0; done < result.bytes(); done += some.bytes()) {
        const std::size_t bytes = std::min(some.bytes(), result.bytes() - done);
        copy(stream, some.span().subspan(0, bytes), result.span().subspan(done, bytes));
    }
    return result;
}

}  // namespace

double training_flops(const model::ModelConfig& c, std::span<const std::int64_t> lengths) {
    // Of all that multiplies: a tied embedding is the head, one of its own is looked up.
    std::int64_t weights = 0;
    for (const model::ParameterSpec& spec : model::parameter_specs(c)) {
        if (spec.role != model::Role::embedding || c.tie_word_embeddings) weights += numel(spec.shape);
    }
    const std::int64_t width = c.num_hidden_layers * c.num_attention_heads * c.head_dim;
    double flops = 0;
    for (const std::int64_t length : lengths) {
        const auto s = static_cast<double>(length);
        flops += 6 * s * (static_cast<double>(weights) + static_cast<double>(width) * s);
    }
    return flops;
}

RateProduct rate_product(Device device, DType dtype) {
    if (computes_on_cpu(device)) return {256, 1536, 576, 4};
    std::int64_t edge = 8192;
    const auto bytes = [&] { return 3 * static_cast<std::uint64_t>(edge * edge) * dtype_size(dtype); };
    for (const std::uint64_t most = free_bytes(device) / 8; edge > 256 && bytes() > most;) edge /= 2;
    return {edge, edge, edge, 6};
}

double measure_product_rate(comm::Communicator& world, Device device, DType dtype) {
    const auto [m, n, k, tries] = rate_product(device, dtype);
    Stream stream = Stream::make_compute(device);
    const Tensor some = random_values(std::min(m, n) * k, dtype);
    const Tensor a = filled(stream, {m, k}, some);
    const Tensor b = filled(stream, {n, k}, some);
    const Tensor c = Tensor::zeros(stream, {m, n}, dtype, kTag);
    stream.synchronize();
    world.barrier();
    double best = 1e9;
    for (int i = 0; i < tries; ++i) {
        const Stopwatch watch;
        ops::linear(stream, a, b, c);
        stream.synchronize();
        if (i > 0) best = std::min(best, watch.seconds());
    }
    auto rate = static_cast<float>(2.0 * static_cast<double>(m * n) * static_cast<double>(k) / best);
    world.all_reduce({reinterpret_cast<std::byte*>(&rate), sizeof(rate)}, DType::float32);
    return static_cast<double>(rate);
}

}  // namespace tandem::trainer
