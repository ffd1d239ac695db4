// Attention on the first GPU: forward, backward and paged decode of bfloat16 at the head sizes that models have, causal and
// full, one length and packed sequences, in TFLOP/s of the useful operations (forward 4 n² d a head, half of it where causal;
// backward 2.5 times as much) and decode in bytes of keys and values a second beside a plain copy.
//   attention_gpu_bench [--small] [--out FILE.json]
// compare_attention.sh (tests/bench/peers) puts PyTorch's beside it. Without a GPU it says so and ends with 2.
#include <cmath>
#include <numeric>
#include <tuple>

#include "common/device/devices.h"
#include "common/ops/attention.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/gpu/op_bench.h"

namespace tandem {
namespace {

using nlohmann::json;

struct Shape4 {
    std::int64_t length, heads, kv_heads, head_dim;
};

class AttentionBench : public OpBench {
  public:
    using OpBench::OpBench;

    // Sequences of `lengths`, packed.
    json forward_and_backward(const Shape4& shape, bool causal, const std::vector<std::int64_t>& lengths) {
        std::vector<std::int32_t> ends{0};
        double pairs = 0.0;  // of a query and a key that it sees
        for (const std::int64_t length : lengths) {
            ends.push_back(ends.back() + static_cast<std::int32_t>(length));
            pairs += static_cast<double>(length) * static_cast<double>(length) / (causal ? 2.0 : 1.0);
        }
        const double flops =
            4.0 * pairs * static_cast<double>(shape.head_dim) * static_cast<double>(shape.heads);
        const std::vector<ops::AttentionSegment> segments = ops::packed_segments(ends, causal);
        const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
        const std::int64_t rows = ends.back();
        const Tensor q = random({rows, shape.heads, shape.head_dim}, DType::bfloat16);
        const Tensor k = random({rows, shape.kv_heads, shape.head_dim}, DType::bfloat16);
        const Tensor v = random(k.shape(), DType::bfloat16), dout = random(q.shape(), DType::bfloat16);
        const Tensor out = zeros(q.shape(), DType::bfloat16),
                     lse = zeros({shape.heads, rows}, DType::float32);
        const Tensor delta = zeros(lse.shape(), DType::float32), dq = zeros(q.shape(), DType::float32);
        const Tensor dk = zeros(k.shape(), DType::float32), dv = zeros(k.shape(), DType::float32);
        const std::string name =
            fmt::format("{} × {}, {} of {} heads of {}, {}", lengths.size(), lengths.front(), shape.heads,
                        shape.kv_heads, shape.head_dim, causal ? "causal" : "full");
        const double forward = add("forward " + name, 0, flops, [&] {
                                   ops::attention_forward(stream(), q, k, v, segments, scale, out, lse);
                               }).median();
        ops::attention_delta(stream(), dout, out, delta);
        const double backward =
            add("backward " + name, 0, 2.5 * flops, [&] {
                ops::attention_backward(stream(), dout, q, k, v, lse, delta, segments, scale, dq, dk, dv);
            }).median();
        fmt::print("{:60} {:8.3f} {:7.1f} {:8.3f} {:7.1f}\n", name, forward * 1e3, flops / forward / 1e12,
                   backward * 1e3, 2.5 * flops / backward / 1e12);
        return {{"sequences", lengths.size()},
                {"length", lengths.front()},
                {"heads", shape.heads},
                {"kv_heads", shape.kv_heads},
                {"head_dim", shape.head_dim},
                {"causal", causal},
                {"forward_ms", forward * 1e3},
                {"backward_ms", backward * 1e3},
                {"forward_tflops", flops / forward / 1e12},
                {"backward_tflops", 2.5 * flops / backward / 1e12}};
    }

    Tensor there(const std::vector<std::int32_t>& values, Shape shape) {
        const Tensor host = Tensor::from<std::int32_t>(values, std::move(shape));
        Tensor result = host.to(stream(), stream().device(), "bench");
        stream().synchronize();
        return result;
    }

    json decode(std::int64_t batch, std::int64_t length, std::int64_t page, double copy_rate) {
        constexpr std::int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
        const std::int64_t width = (length + page - 1) / page;
        const Tensor q = random({batch, kHeads, kHeadDim}, DType::bfloat16),
                     out = zeros(q.shape(), DType::bfloat16);
        const Tensor k = random({batch * width, page, kKvHeads, kHeadDim}, DType::bfloat16),
                     v = random(k.shape(), DType::bfloat16);
        std::vector<std::int32_t> table(static_cast<std::size_t>(batch * width));
        std::iota(table.begin(), table.end(), 0);
        for (std::size_t i = 0; i < table.size(); ++i) std::swap(table[i], table[i * 7919 % table.size()]);
        const Tensor pages = there(table, {batch, width});
        const Tensor lengths = there(
            std::vector<std::int32_t>(static_cast<std::size_t>(batch), static_cast<std::int32_t>(length)),
            {batch});
        const double bytes = 2.0 * static_cast<double>(batch * length * kKvHeads * kHeadDim * 2);
        const double seconds =
            add("decode", bytes, 0, [&] {
                ops::paged_attention_decode(stream(), q, k, v, pages, lengths, 0.088f, out);
            }).median();
        fmt::print(
            "decode: {:4} sequences of {:6}, pages of {:3} {:27.1f} us {:7.0f} GB/s {:4.0f}% of a copy\n",
            batch, length, page, seconds * 1e6, bytes / seconds / 1e9, 100.0 * bytes / seconds / copy_rate);
        return {{"batch", batch},
                {"length", length},
                {"page", page},
                {"us", seconds * 1e6},
                {"bytes_per_s", bytes / seconds}};
    }
};

json measure(const GpuBench& on) {
    AttentionBench bench(on.gpu);
    const std::int64_t part = on.small ? 128 : 1;  // of each length
    fmt::print("{}\n{:60} {:>8} {:>7} {:>8} {:>7}\n", on.info.name, "", "forw. ms", "TFLOP/s", "backw.",
               "TFLOP/s");
    json rows = json::array(), decode = json::array();
    for (const Shape4& shape : {Shape4{16384, 16, 4, 128},
                                {8192, 16, 4, 128},
                                {2048, 64, 16, 128},
                                {16384, 16, 4, 64},
                                {16384, 16, 4, 96},
                                {8192, 16, 4, 256}}) {
        for (const bool causal : {true, false})
            rows.push_back(bench.forward_and_backward(shape, causal, {shape.length / part}));
    }
    std::vector<std::int64_t> packed;
    for (std::int64_t i = 0; i < 24; ++i) packed.push_back((700 + i * 211 % 2600) / part);
    rows.push_back(bench.forward_and_backward({0, 16, 4, 128}, true, packed));
    bench.add_copy((std::int64_t{1} << 28) / part / part);
    const double copy_rate = bench.rows().back().bytes / bench.rows().back().median();
    for (const auto& [batch, length, page] :
         std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{{1, 1024, 16},
                                                                           {1, 32768, 16},
                                                                           {8, 8192, 16},
                                                                           {64, 1024, 16},
                                                                           {64, 8192, 16},
                                                                           {64, 8192, 64},
                                                                           {256, 2048, 16}})
        decode.push_back(bench.decode(batch, std::max<std::int64_t>(length / part, 1), page, copy_rate));
    return {{"gpu", on.info.name},
            {"capability", on.info.capability},
            {"copy_bytes_per_s", copy_rate},
            {"rows", rows},
            {"decode", decode}};
}

}  // namespace
}  // namespace tandem

int main(int count, char** arguments) {
    return tandem::run_gpu_bench("attention_gpu_bench", count, arguments, tandem::measure);
}
