// Attention at head_dim 64, 9 heads on 3 kv heads (SmolLM2-135M), against the rate of matrix products of the same
// dtype and run. FLOPs: forward 4 S² D H / 2 (causal), backward 2.5 times that.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "common/ops/attention.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {
namespace {

constexpr std::int64_t kHeads = 9;
constexpr std::int64_t kKvHeads = 3;
constexpr std::int64_t kHeadDim = 64;
constexpr float kScale = 0.125f;

double value_at(const Tensor& tensor, std::int64_t index) {
    return tensor.dtype() == DType::float32 ? static_cast<double>(tensor.data<float>()[index])
                                            : static_cast<double>(float(tensor.data<bfloat16>()[index]));
}

// One row of every head in fp64.
void verify(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, std::int64_t row) {
    for (std::int64_t head = 0; head < kHeads; ++head) {
        const std::int64_t kv = head / (kHeads / kKvHeads);
        std::vector<double> p;
        double sum = 0.0;
        for (std::int64_t j = 0; j <= row; ++j) {
            double score = 0.0;
            for (std::int64_t d = 0; d < kHeadDim; ++d) {
                score += value_at(q, (row * kHeads + head) * kHeadDim + d) *
                         value_at(k, (j * kKvHeads + kv) * kHeadDim + d);
            }
            p.push_back(std::exp(score * static_cast<double>(kScale)));
            sum += p.back();
        }
        for (std::int64_t d = 0; d < kHeadDim; ++d) {
            double wanted = 0.0;
            for (std::int64_t j = 0; j <= row; ++j) {
                wanted +=
                    p[static_cast<std::size_t>(j)] / sum * value_at(v, (j * kKvHeads + kv) * kHeadDim + d);
            }
            const double got = value_at(out, (row * kHeads + head) * kHeadDim + d);
            const double bound = out.dtype() == DType::float32 ? 1e-5 : 1e-2;
            if (std::abs(got - wanted) > bound) {
                throw Error(
                    fmt::format("attention is wrong at row {} head {}: {} for {}", row, head, got, wanted));
            }
        }
    }
}

void measure(Table& table, std::int64_t length, DType dtype) {
    Stream stream = Stream::make_inline();
    const Tensor q = random_tensor({length, kHeads, kHeadDim}, dtype, 1);
    const Tensor k = random_tensor({length, kKvHeads, kHeadDim}, dtype, 2);
    const Tensor v = random_tensor({length, kKvHeads, kHeadDim}, dtype, 3);
    const Tensor dout = random_tensor({length, kHeads, kHeadDim}, dtype, 4);
    const Tensor out = Tensor::zeros({length, kHeads, kHeadDim}, dtype, "bench");
    const Tensor lse = Tensor::zeros({kHeads, length}, DType::float32, "bench");
    const Tensor delta = Tensor::zeros({kHeads, length}, DType::float32, "bench");
    const Tensor dq = Tensor::zeros(q.shape(), DType::float32, "bench");
    const Tensor dk = Tensor::zeros(k.shape(), DType::float32, "bench");
    const Tensor dv = Tensor::zeros(v.shape(), DType::float32, "bench");
    const std::vector<ops::AttentionSegment> segments = {{0, length, 0, length, true}};
    const double flops = 4.0 * static_cast<double>(length * length * kHeadDim * kHeads) / 2.0;
    const std::string name = fmt::format("{} S {}", dtype_name(dtype), length);
    const auto product = product_of(dtype);
    const auto add = [&](const char* what, double done, const std::function<void()>& body) {
        const InTurns turns = in_turns(body, product);
        table.rows.push_back({fmt::format("attention {} {}", what, name), turns.ms, done / turns.ms * 1e-6,
                              "GFLOP/s", turns.ratio * done / kProductFlops,
                              fmt::format("{} matmul", dtype_name(dtype))});
    };
    const auto forward = [&] { ops::attention_forward(stream, q, k, v, segments, kScale, out, lse); };
    forward();
    verify(q, k, v, out, 0);
    verify(q, k, v, out, length - 1);
    add("forward", flops, forward);
    ops::attention_delta(stream, dout, out, delta);
    add("backward", 2.5 * flops,
        [&] { ops::attention_backward(stream, dout, q, k, v, lse, delta, segments, kScale, dq, dk, dv); });
}

struct Heads {
    std::int64_t queries = kHeads, kv = kKvHeads, dim = kHeadDim;
};

// One new token of each of `batch` sequences of `length`, pages of 16, layer after layer; the bytes are those of the
// caches.
void measure_decode(Table& table, std::int64_t batch, std::int64_t length, std::int64_t layers, DType dtype,
                    const Heads& heads = {}) {
    Stream stream = Stream::make_inline();
    const std::int64_t pages = batch * length / 16;
    const Tensor q = random_tensor({batch, heads.queries, heads.dim}, dtype, 1);
    // In one piece, as an engine has them: large pages of memory.
    const Tensor caches = random_tensor({2 * layers, pages, 16, heads.kv, heads.dim}, dtype, 2);
    const auto cache = [&](std::int64_t index) {
        return caches.rows(index, 1).reshape({pages, 16, heads.kv, heads.dim});
    };
    const Tensor out = Tensor::zeros(q.shape(), dtype, "bench");
    std::vector<std::vector<std::int32_t>> tables(static_cast<std::size_t>(batch));
    for (std::int64_t page = 0; page < pages; ++page) {
        tables[static_cast<std::size_t>(page % batch)].push_back(static_cast<std::int32_t>(page));
    }
    const std::vector<std::int32_t> lengths(static_cast<std::size_t>(batch),
                                            static_cast<std::int32_t>(length));
    const auto read = [&] { read_all(caches); };
    const double light_ms = median_ms(read);
    const auto [ms, ratio] = in_turns(
        [&] {
            for (std::int64_t layer = 0; layer < layers; ++layer)
                ops::paged_attention_decode(stream, q, cache(2 * layer), cache(2 * layer + 1), tables,
                                            lengths, kScale, out);
        },
        read);
    const auto bytes = static_cast<double>(caches.bytes());
    std::string name = fmt::format("{} batch {} of {}, {} layers", dtype_name(dtype), batch, length, layers);
    if (heads.dim != kHeadDim) name += fmt::format(", {}/{} x {}", heads.queries, heads.kv, heads.dim);
    table.rows.push_back({"read pages, " + name, light_ms, bytes / light_ms * 1e-6, "GB/s", 0, ""});
    table.rows.push_back({"paged decode, " + name, ms, bytes / ms * 1e-6, "GB/s", ratio, "reading"});
}

}  // namespace

void attention_rows(Table& table) {
    measure_product_rates(table);
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
        for (const std::int64_t length : {512, 2048}) measure(table, length, dtype);
        measure_decode(table, 1, 1024, 1, dtype);
        measure_decode(table, 32, 1024, 1, dtype);
        measure_decode(table, 64, 96, 30, dtype);
        measure_decode(table, 32, 1024, 1, dtype, {16, 8, 128});  // Qwen3-0.6B
    }
}

}  // namespace tandem::bench
