// The ops on the first GPU: what each memory-bound one reads and writes a second, beside the rate of a plain
// copy on the device in the same run (the bar is 85% of it), and matrix products beside the best rate of a
// large one.
//   ops_gpu_bench [--out FILE.json]
// Without a GPU it says so and ends with 2.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "common/device/devices.h"
#include "common/ops/backends.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::int64_t kTokens = 16384, kHidden = 4096, kVocab = 151936, kHeads = 32, kHeadDim = 128;
constexpr double kBar = 0.85;

struct Row {
    std::string name;
    double bytes = 0.0;  // read and written
    double flops = 0.0;
    std::vector<double> seconds;

    double median() const {
        std::vector<double> sorted = seconds;
        std::sort(sorted.begin(), sorted.end());
        return sorted[sorted.size() / 2];
    }
};

class Bench {
  public:
    explicit Bench(Device device) : stream_(Stream::make_compute(device)) {}

    Stream& stream() { return stream_; }
    Tensor random(Shape shape, DType dtype) {
        std::mt19937 engine(static_cast<unsigned>(++seed_));
        std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
        std::vector<float> pattern(1 << 20);
        for (float& value : pattern) value = uniform(engine);
        Tensor host = Tensor::empty(shape, DType::float32, "bench");
        const auto values = host.values<float>();
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = pattern[i % pattern.size()];
        Tensor wide = host.to(stream_, stream_.device(), "bench");
        stream_.synchronize();
        if (dtype == DType::float32) return wide;
        Tensor result = Tensor::empty(stream_, shape, dtype, "bench");
        ops::cast(stream_, wide, result);
        stream_.synchronize();
        return result;
    }
    Tensor zeros(Shape shape, DType dtype) {
        return Tensor::zeros(stream_, std::move(shape), dtype, "bench");
    }

    // Seven runs of as many calls as take about 20 ms.
    Row& add(std::string name, double bytes, double flops, const std::function<void()>& work) {
        work();
        stream_.synchronize();
        const int calls = std::clamp(static_cast<int>(0.02 / time(work, 3)), 3, 2000);
        Row row{std::move(name), bytes, flops, {}};
        for (int run = 0; run < 7; ++run) row.seconds.push_back(time(work, calls));
        rows_.push_back(std::move(row));
        return rows_.back();
    }
    const std::vector<Row>& rows() const { return rows_; }

  private:
    double time(const std::function<void()>& work, int calls) {
        stream_.synchronize();
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) work();
        stream_.synchronize();
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / calls;
    }
    Stream stream_;
    std::vector<Row> rows_;
    int seed_ = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors) {
    double sum = 0.0;
    for (const Tensor& tensor : tensors) sum += static_cast<double>(tensor.bytes());
    return sum;
}

void rows_of_tokens(Bench& bench) {
    Stream& s = bench.stream();
    const DType b = DType::bfloat16, f = DType::float32;
    const Tensor x = bench.random({kTokens, kHidden}, b), y = bench.random({kTokens, kHidden}, b);
    const Tensor z = bench.random({kTokens, kHidden}, b), weight = bench.random({kHidden}, b);
    const Tensor wide = bench.random({kTokens, kHidden}, f);
    Tensor rstd = bench.zeros({kTokens}, f), dweight = bench.zeros({kHidden}, f),
           out = bench.zeros({kTokens, kHidden}, b);
    Tensor out2 = bench.zeros({kTokens, kHidden}, b);
    bench.add("cast float32 to bfloat16", bytes_of({wide, out}), 0, [&] { ops::cast(s, wide, out); });
    bench.add("add bfloat16", bytes_of({out, x, out}), 0, [&] { ops::add(s, out, x); });
    bench.add("rms_norm", bytes_of({x, out}), 0, [&] { ops::rms_norm(s, x, weight, 1e-6f, out, rstd); });
    bench.add("rms_norm_backward", bytes_of({x, y, out}), 0,
              [&] { ops::rms_norm_backward(s, y, x, weight, rstd, out, dweight); });
    const Tensor heads = x.reshape({kTokens, kHeads, kHeadDim}), head_weight = bench.random({kHeadDim}, b);
    bench.add("rms_norm of heads", bytes_of({x, out}), 0,
              [&] { ops::rms_norm(s, heads, head_weight, 1e-6f, out.reshape(heads.shape()), {}); });
    bench.add("swiglu", bytes_of({x, y, out}), 0, [&] { ops::swiglu(s, x, y, out); });
    bench.add("swiglu_backward", bytes_of({x, y, z, out, out2}), 0,
              [&] { ops::swiglu_backward(s, z, x, y, out, out2); });
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i)
        frequencies.push_back(std::pow(1e6f, -static_cast<float>(i) / 64.0f));
    const ops::RopeTable table(frequencies);
    std::vector<std::int32_t> positions(kTokens), ids(kTokens);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i % 4096);
    bench.add("rope", bytes_of({x, x}), 0, [&] { ops::rope(s, heads, positions, table); });
    const Tensor bias = bench.zeros({kHidden}, f);
    bench.add("linear_backward_bias", bytes_of({x}), 0, [&] { ops::linear_backward_bias(s, x, bias); });
    const Tensor embeddings = bench.random({kVocab, kHidden / 4}, b);
    const Tensor looked_up = bench.zeros({kTokens, kHidden / 4}, b);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 7919 % kVocab);
    bench.add("embedding", bytes_of({looked_up, looked_up}), 0,
              [&] { ops::embedding(s, embeddings, ids, looked_up); });
}

void losses_and_optimizer(Bench& bench) {
    Stream& s = bench.stream();
    const std::int64_t rows = 1024;
    const Tensor logits = bench.random({rows, kVocab}, DType::float32);
    std::vector<std::int32_t> targets(rows, 5);
    std::vector<float> logprobs(rows), lse(rows), entropies(rows);
    bench.add("token_logprobs", bytes_of({logits}), 0,
              [&] { ops::token_logprobs(s, logits, targets, 1.0f, logprobs, lse, entropies); });
    for (const auto& [name, how] : {std::pair<const char*, ops::Sampling>{"greedy", {.temperature = 0.0f}},
                                    {"unrestricted", {.uniform = 0.5}},
                                    {"top-k and top-p", {.top_k = 1000, .top_p = 0.9f, .uniform = 0.5}}}) {
        for (const std::int64_t samples : {std::int64_t{1}, rows}) {  // bytes as if one look were enough
            std::vector<ops::Sampling> all(static_cast<std::size_t>(samples), how);
            for (std::size_t i = 0; i < all.size(); ++i) all[i].row = static_cast<std::int32_t>(i);
            std::vector<std::int32_t> tokens(all.size());
            bench.add(fmt::format("sample_tokens {}, {} rows", name, samples),
                      static_cast<double>(samples * kVocab) * 4.0, 0,
                      [&] { ops::sample_tokens(s, logits, all, tokens, {}); });
            s.synchronize();
        }
    }
    s.synchronize();
    bench.add("token_logprobs_backward", bytes_of({logits, logits}), 0,
              [&] { ops::token_logprobs_backward(s, logits, targets, 1.0f, lse, logprobs); });
    const std::int64_t count = 1 << 27;
    const Tensor p = bench.random({count}, DType::float32), g = bench.random({count}, DType::float32);
    const Tensor m = bench.zeros({count}, DType::float32), v = bench.zeros({count}, DType::float32);
    bench.add("adamw", bytes_of({p, g, m, v, p, m, v}), 0, [&] { ops::adamw(s, p, g, m, v, {}); });
    bench.add("sum_of_squares", bytes_of({g}), 0, [&] { ops::sum_of_squares(s, g); });
    Tensor bytes = bench.zeros({count}, DType::uint8);
    std::vector<ops::CopyItem> items;
    std::vector<ops::Checksum> sums(64);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t part = p.bytes() / sums.size();
        items.push_back({.from = p.span().subspan(i * part, part), .to = m.span().subspan(i * part, part)});
    }
    bench.add("batched_copy", bytes_of({p, m}), 0, [&] { ops::batched_copy(s, items); });
    for (std::size_t i = 0; i < sums.size(); ++i) items[i].checksum = &sums[i];
    bench.add("batched_copy with checksums", bytes_of({p, m}), 0, [&] { ops::batched_copy(s, items); });
    s.synchronize();
    if (!(sums[0] == ops::checksum(s, items[0].to)))
        throw Error("batched_copy: the checksum is not the target's");
}

void decode(Bench& bench) {
    Stream& s = bench.stream();
    const std::int64_t batch = 64, length = 4096, page = 16, kv_heads = 8;
    const Tensor q = bench.random({batch, kHeads, kHeadDim}, DType::bfloat16);
    const Tensor k = bench.random({batch * length / page, page, kv_heads, kHeadDim}, DType::bfloat16);
    const Tensor v = bench.random(k.shape(), DType::bfloat16);
    const Tensor out = bench.zeros(q.shape(), DType::bfloat16);
    std::vector<std::vector<std::int32_t>> tables;
    std::int32_t next = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
        tables.emplace_back();
        for (std::int64_t n = 0; n < length / page; ++n) tables.back().push_back(next++);
    }
    const std::vector<std::int32_t> lengths(batch, length);
    bench.add("paged_attention_decode", bytes_of({k, v}), 0,
              [&] { ops::paged_attention_decode(s, q, k, v, tables, lengths, 0.09f, out); });
}

void products(Bench& bench) {
    Stream& s = bench.stream();
    const auto product = [&](const char* name, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
        const Tensor x = bench.random({m, k}, dtype), weight = bench.random({n, k}, dtype),
                     y = bench.zeros({m, n}, dtype);
        bench.add(fmt::format("{} {}×{}×{}", name, m, n, k), bytes_of({x, weight, y}),
                  2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k),
                  [&] { ops::linear(s, x, weight, y); });
    };
    product("peak of bfloat16", 8192, 8192, 8192, DType::bfloat16);
    product("linear bfloat16", 4096, 4096, 4096, DType::bfloat16);
    product("linear bfloat16", 16384, 9728, 2560, DType::bfloat16);
    product("linear bfloat16", 64, 4096, 4096, DType::bfloat16);
    product("linear float32", 4096, 4096, 4096, DType::float32);
}

void attention(Bench& bench) {
    Stream& s = bench.stream();
    const std::int64_t length = 4096;
    const Tensor q = bench.random({length, kHeads, kHeadDim}, DType::bfloat16);
    const Tensor k = bench.random({length, 8, kHeadDim}, DType::bfloat16),
                 v = bench.random(k.shape(), DType::bfloat16);
    const Tensor out = bench.zeros(q.shape(), DType::bfloat16),
                 lse = bench.zeros({kHeads, length}, DType::float32);
    const Tensor delta = bench.zeros(lse.shape(), DType::float32),
                 dq = bench.zeros(q.shape(), DType::float32);
    const Tensor dk = bench.zeros(k.shape(), DType::float32), dv = bench.zeros(k.shape(), DType::float32);
    const double flops =
        2.0 * 2.0 * kHeads * kHeadDim * static_cast<double>(length) * static_cast<double>(length) / 2;
    const std::vector<ops::AttentionSegment> all = {{0, length, 0, length, true}};
    bench.add("attention_forward", 0, flops,
              [&] { ops::attention_forward(s, q, k, v, all, 0.09f, out, lse); });
    ops::attention_delta(s, q, out, delta);
    bench.add("attention_backward", 0, 2.5 * flops,
              [&] { ops::attention_backward(s, q, q, k, v, lse, delta, all, 0.09f, dq, dk, dv); });
}

json run(Device gpu, const DeviceInfo& info) {
    Bench bench(gpu);
    {
        const Tensor from = bench.random({1 << 28}, DType::float32),
                     to = bench.zeros({1 << 28}, DType::float32);
        bench.add("copy", bytes_of({from, to}), 0, [&] { copy(bench.stream(), from.span(), to.span()); });
    }
    rows_of_tokens(bench);
    losses_and_optimizer(bench);
    decode(bench);
    products(bench);
    attention(bench);

    const Row& copied = bench.rows().front();
    const double copy_rate = copied.bytes / copied.median();
    double peak = 0.0;
    for (const Row& row : bench.rows()) peak = std::max(peak, row.flops / row.median());
    json result = {{"gpu", info.name},
                   {"capability", info.capability},
                   {"copy_bytes_per_s", copy_rate},
                   {"product_flops_per_s", peak},
                   {"bar", kBar},
                   {"rows", json::array()}};
    fmt::print("{}\n{:42} {:>10} {:>10} {:>8}\n", info.name, "op", "µs", "GB/s", "of copy");
    for (const Row& row : bench.rows()) {
        const double seconds = row.median();
        json entry = {{"name", row.name}, {"seconds", seconds}, {"all_seconds", row.seconds}};
        if (row.flops > 0) {
            entry["flops_per_s"] = row.flops / seconds;
            entry["of_peak"] = row.flops / seconds / peak;
            fmt::print("{:42} {:10.1f} {:7.1f} TFLOP/s {:6.1f}% of peak\n", row.name, seconds * 1e6,
                       row.flops / seconds / 1e12, 100 * row.flops / seconds / peak);
        } else {
            entry["bytes_per_s"] = row.bytes / seconds;
            entry["of_copy"] = row.bytes / seconds / copy_rate;
            fmt::print("{:42} {:10.1f} {:10.1f} {:7.1f}%\n", row.name, seconds * 1e6,
                       row.bytes / seconds / 1e9, 100 * row.bytes / seconds / copy_rate);
        }
        result["rows"].push_back(std::move(entry));
    }
    return result;
}

}  // namespace
}  // namespace tandem

int main(int count, char** arguments) {
    return tandem::run_gpu_bench("ops_gpu_bench", count, arguments, tandem::run);
}
