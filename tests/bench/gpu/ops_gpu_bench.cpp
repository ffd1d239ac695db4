// The ops on the first GPU: what each memory-bound one reads and writes a second, beside the rate of a plain
// copy on the device in the same run (the bar is 85% of it), and matrix products beside the best rate of a
// large one.
//   ops_gpu_bench [--small] [--out FILE.json]
// Without a GPU it says so and ends with 2. --small: a rehearsal, also on the emulated GPU (gpu_bench.h).
//
// Bytes are the fewest that the op must move: each input read once, each output written once. All tensors of
// an op together are several times the L2. A time is the median of seven runs of some 20 ms of calls back to
// back, so launches and what a call copies to or from the host are in it; copies are measured before and
// after the ops, and the better one counts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/device/devices.h"
#include "common/ops/adamw.h"
#include "common/ops/attention.h"
#include "common/ops/batched_copy.h"
#include "common/ops/cross_entropy.h"
#include "common/ops/delta.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"
#include "common/ops/quantize.h"
#include "common/ops/rms_norm.h"
#include "common/ops/rope.h"
#include "common/ops/sampling.h"
#include "common/ops/swiglu.h"
#include "tests/bench/gpu/gpu_bench.h"
#include "tests/bench/gpu/op_bench.h"

namespace tandem {
namespace {

using nlohmann::json;

constexpr std::int64_t kHeadDim = 128;

struct Sizes {
    std::int64_t tokens = 16384, hidden = 4096, vocab = 151936, rows = 1024, context = 4096;
    std::int64_t elements = 1 << 28, side = 32768;  // of what is flat, of a square weight
    std::int64_t part = 1;                          // of each side of a product
    std::int64_t heads() const { return hidden / kHeadDim; }
};
constexpr Sizes kSmall{256, 1024, 4096, 16, 64, 1 << 22, 512, 32};

// The rig, and the sizes of this run.
class Bench : public OpBench {
  public:
    Bench(Device device, const Sizes& sizes) : OpBench(device), sizes_(sizes) {}
    const Sizes& sizes() const { return sizes_; }

  private:
    const Sizes sizes_;
};

double bytes_of(std::initializer_list<Tensor> tensors) {
    double sum = 0.0;
    for (const Tensor& tensor : tensors) sum += static_cast<double>(tensor.bytes());
    return sum;
}

void rows_of_tokens(Bench& bench) {
    Stream& s = bench.stream();
    const Sizes& n = bench.sizes();
    const DType b = DType::bfloat16, f = DType::float32;
    const Tensor x = bench.random({n.tokens, n.hidden}, b), y = bench.random({n.tokens, n.hidden}, b);
    const Tensor z = bench.random({n.tokens, n.hidden}, b), weight = bench.random({n.hidden}, b);
    const Tensor wide = bench.random({n.tokens, n.hidden}, f);
    Tensor rstd = bench.zeros({n.tokens}, f), dweight = bench.zeros({n.hidden}, f),
           out = bench.zeros({n.tokens, n.hidden}, b);
    Tensor out2 = bench.zeros({n.tokens, n.hidden}, b);
    bench.add("cast float32 to bfloat16", bytes_of({wide, out}), 0, [&] { ops::cast(s, wide, out); });
    bench.add("add bfloat16", bytes_of({out, x, out}), 0, [&] { ops::add(s, out, x); });
    bench.add("rms_norm", bytes_of({x, out}), 0, [&] { ops::rms_norm(s, x, weight, 1e-6f, out, rstd); });
    bench.add("rms_norm_backward", bytes_of({x, y, out}), 0,
              [&] { ops::rms_norm_backward(s, y, x, weight, rstd, out, dweight); });
    const Tensor heads = x.reshape({n.tokens, n.heads(), kHeadDim}),
                 head_weight = bench.random({kHeadDim}, b);
    bench.add("rms_norm of heads", bytes_of({x, out}), 0,
              [&] { ops::rms_norm(s, heads, head_weight, 1e-6f, out.reshape(heads.shape()), {}); });
    bench.add("swiglu", bytes_of({x, y, out}), 0, [&] { ops::swiglu(s, x, y, out); });
    bench.add("swiglu_backward", bytes_of({x, y, z, out, out2}), 0,
              [&] { ops::swiglu_backward(s, z, x, y, out, out2); });
    std::vector<float> frequencies;
    for (int i = 0; i < kHeadDim / 2; ++i)
        frequencies.push_back(std::pow(1e6f, -static_cast<float>(i) / 64.0f));
    const ops::RopeTable table(frequencies);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n.tokens)), ids(positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int32_t>(i % 4096);
    bench.add("rope", bytes_of({x, x}), 0, [&] { ops::rope(s, heads, positions, table); });
    const Tensor bias = bench.zeros({n.hidden}, f);
    bench.add("linear_backward_bias", bytes_of({x}), 0, [&] { ops::linear_backward_bias(s, x, bias); });
    const Tensor embeddings = bench.random({n.vocab, n.hidden}, b);
    for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(n.vocab));
    bench.add("embedding", bytes_of({out, out}), 0, [&] { ops::embedding(s, embeddings, ids, out); });
}

// Weights in eight bits, and what changed of weights. Both give a digest of what they wrote, which is a chain
// over it: see common/ops/README.md.
void weights(Bench& bench) {
    Stream& s = bench.stream();
    const Sizes& n = bench.sizes();
    const std::int64_t side = n.side;
    const Tensor weight = bench.random({side, side}, DType::bfloat16);
    const ops::ScaleGrid grid{ops::Quantization::fp8_block, side, side};
    const ops::WeightBox box{weight.raw(), static_cast<std::size_t>(side) * 2, DType::bfloat16, 0, 0, side,
                             side};
    std::vector<float> scales(static_cast<std::size_t>(grid.scale_rows() * grid.scale_columns()), 0.0f);
    bench.add("accumulate_amax fp8", bytes_of({weight}), 0,
              [&] { ops::accumulate_amax(s, box, grid, scales); });
    ops::amax_to_scale(grid, scales);
    const Tensor eight = bench.zeros({side, side}, DType::uint8);
    bench.add("quantize fp8 with its digest", bytes_of({weight, eight}), 0,
              [&] { ops::quantize(s, box, grid, scales, eight.span()); });

    // Two versions take turns: one element of a hundred differs, once the first has been overwritten.
    const std::int64_t count = n.elements;
    const Tensor first = bench.random({count}, DType::bfloat16),
                 second = bench.random({count}, DType::bfloat16);
    copy(s, first.span(), second.span());
    const Tensor marks = bench.random({count / 100}, DType::bfloat16);
    std::vector<ops::CopyItem> items(1);
    items[0].from = {marks.raw(), 2};
    items[0].to = {second.raw(), 2};
    items[0].rows = count / 100;
    items[0].from_stride = 2;
    items[0].to_stride = 200;
    ops::batched_copy(s, items);
    const Tensor base = bench.zeros({count}, DType::bfloat16), to = bench.zeros({count}, DType::bfloat16);
    ops::DeltaResult delta;
    bool turn = false;
    const auto encode = [&] {
        turn = !turn;
        const ops::DeltaSource source{(turn ? first : second).raw(),
                                      static_cast<std::size_t>(count) * 2,
                                      1,
                                      count,
                                      DType::bfloat16,
                                      DType::bfloat16};
        delta = ops::delta_encode(s, source, base.span(), to.span());
    };
    encode();
    encode();
    bench.add("delta_encode, 1% changed, with its digests", bytes_of({first, base}), 0, encode);
    const double changed = static_cast<double>(delta.bytes) + 2.0 * static_cast<double>(delta.changed);
    bench
        .add("delta_apply, 1% changed", changed, 0,
             [&] {
                 ops::delta_apply(s, delta.codec, to.span().subspan(0, delta.bytes), 2, 1, count, base.raw(),
                                  static_cast<std::size_t>(count) * 2);
             })
        .barred = false;  // single elements far apart: sectors, not bytes
}

void losses_and_optimizer(Bench& bench) {
    Stream& s = bench.stream();
    const Sizes& n = bench.sizes();
    const std::int64_t rows = n.rows;
    const Tensor logits = bench.random({rows, n.vocab}, DType::float32);
    std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 5);
    std::vector<float> logprobs(targets.size()), lse(targets.size()), entropies(targets.size());
    bench.add("token_logprobs", bytes_of({logits}), 0,
              [&] { ops::token_logprobs(s, logits, targets, 1.0f, logprobs, lse, entropies); });
    for (const auto& [name, how] : {std::pair<const char*, ops::Sampling>{"greedy", {.temperature = 0.0f}},
                                    {"unrestricted", {.uniform = 0.5}},
                                    {"top-k and top-p", {.top_k = 1000, .top_p = 0.9f, .uniform = 0.5}}}) {
        for (const std::int64_t samples : {std::int64_t{1}, rows}) {  // bytes as if one look were enough
            std::vector<ops::Sampling> all(static_cast<std::size_t>(samples), how);
            for (std::size_t i = 0; i < all.size(); ++i) all[i].row = static_cast<std::int32_t>(i);
            std::vector<std::int32_t> tokens(all.size());
            bench
                .add(fmt::format("sample_tokens {}, {} rows", name, samples),
                     static_cast<double>(samples * n.vocab) * 4.0, 0,
                     [&] { ops::sample_tokens(s, logits, all, tokens, {}); })
                .barred = samples > 1;  // one row is one block
            s.synchronize();
        }
    }
    s.synchronize();
    bench.add("token_logprobs_backward", bytes_of({logits, logits}), 0,
              [&] { ops::token_logprobs_backward(s, logits, targets, 1.0f, lse, logprobs); });
    const std::int64_t count = n.elements;
    const Tensor p = bench.random({count}, DType::float32), g = bench.random({count}, DType::float32);
    const Tensor m = bench.zeros({count}, DType::float32), v = bench.zeros({count}, DType::float32);
    bench.add("adamw", bytes_of({p, g, m, v, p, m, v}), 0, [&] { ops::adamw(s, p, g, m, v, {}); });
    const Tensor narrow = bench.random({count}, DType::bfloat16);
    bench.add("adamw bfloat16, stochastic rounding", bytes_of({narrow, g, m, v, narrow, m, v}), 0,
              [&] { ops::adamw(s, narrow, g, m, v, {.stochastic_rounding = true}); });
    {
        const Tensor large = bench.random({2 * count}, DType::float32);
        bench.add("sum_of_squares", bytes_of({large}), 0, [&] { ops::sum_of_squares(s, large); });
    }
    // Items of 1 MiB, as weight sync cuts them.
    std::vector<ops::CopyItem> items;
    std::vector<ops::Checksum> sums(1024);
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
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t part = narrow.bytes() / sums.size();
        items[i].to = narrow.span().subspan(i * part, part);
        items[i].from_dtype = DType::float32;
        items[i].to_dtype = DType::bfloat16;
    }
    bench.add("batched_copy to bfloat16 with checksums", bytes_of({p, narrow}), 0,
              [&] { ops::batched_copy(s, items); });
    items.clear();
    // The left half of a weight's columns: rows of 4 KiB of every 8.
    for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::size_t part = p.bytes() / sums.size();
        ops::CopyItem item{.from = p.span().subspan(i * part, 4096),
                           .to = m.span().subspan(i * part / 2, 4096)};
        item.rows = static_cast<std::int64_t>(part / 8192);
        item.from_stride = 8192;
        item.to_stride = 4096;
        item.checksum = &sums[i];
        items.push_back(item);
    }
    bench.add("batched_copy of half rows with checksums", bytes_of({p}), 0,
              [&] { ops::batched_copy(s, items); });
    s.synchronize();
}

void decode(Bench& bench) {
    Stream& s = bench.stream();
    const Sizes& n = bench.sizes();
    const std::int64_t batch = 64, length = n.context, page = 16, kv_heads = 8;
    const Tensor q = bench.random({batch, n.heads(), kHeadDim}, DType::bfloat16);
    const Tensor k = bench.random({batch * length / page, page, kv_heads, kHeadDim}, DType::bfloat16);
    const Tensor v = bench.random(k.shape(), DType::bfloat16);
    const Tensor out = bench.zeros(q.shape(), DType::bfloat16);
    std::vector<std::vector<std::int32_t>> tables;
    std::int32_t next = 0;
    for (std::int64_t i = 0; i < batch; ++i) {
        tables.emplace_back();
        for (std::int64_t n = 0; n < length / page; ++n) tables.back().push_back(next++);
    }
    const std::vector<std::int32_t> lengths(batch, static_cast<std::int32_t>(length));
    bench.add("paged_attention_decode", bytes_of({k, v}), 0,
              [&] { ops::paged_attention_decode(s, q, k, v, tables, lengths, 0.09f, out); });
}

void products(Bench& bench) {
    Stream& s = bench.stream();
    const std::int64_t part = bench.sizes().part;
    const auto product = [&](const char* name, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
        for (std::int64_t* side : {&m, &n, &k}) *side = std::max<std::int64_t>(*side / part, 16);
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

// A decode step's: bound by reading the weight. Each call has another one, so that none lies in the L2 cache.
void products_of_few_rows(Bench& bench) {
    Stream& s = bench.stream();
    const std::int64_t part = bench.sizes().part;
    for (const auto& [n, k] :
         {std::pair<std::int64_t, std::int64_t>{1024, 2560}, {9728, 2560}, {2560, 9728}}) {
        const std::int64_t outputs = n / part, terms = k / part, several = (std::int64_t{1} << 28) / (n * k);
        const Tensor weights = bench.random({several * outputs, terms}, DType::bfloat16);
        for (const std::int64_t m : {1, 16, 32, 64, 128}) {
            const Tensor x = bench.random({m, terms}, DType::bfloat16),
                         y = bench.zeros({m, outputs}, DType::bfloat16);
            std::int64_t turn = 0;
            bench
                .add(fmt::format("linear of {} rows, {}×{}", m, outputs, terms),
                     bytes_of({x, weights.rows(0, outputs), y}), 0,
                     [&] { ops::linear(s, x, weights.rows(turn++ % several * outputs, outputs), y); })
                .barred = m <= 32;
        }
    }
}

void attention(Bench& bench) {
    Stream& s = bench.stream();
    const Sizes& n = bench.sizes();
    const std::int64_t length = n.context;
    const Tensor q = bench.random({length, n.heads(), kHeadDim}, DType::bfloat16);
    const Tensor k = bench.random({length, 8, kHeadDim}, DType::bfloat16),
                 v = bench.random(k.shape(), DType::bfloat16);
    const Tensor out = bench.zeros(q.shape(), DType::bfloat16),
                 lse = bench.zeros({n.heads(), length}, DType::float32);
    const Tensor delta = bench.zeros(lse.shape(), DType::float32),
                 dq = bench.zeros(q.shape(), DType::float32);
    const Tensor dk = bench.zeros(k.shape(), DType::float32), dv = bench.zeros(k.shape(), DType::float32);
    const double flops =
        2.0 * 2.0 * n.heads() * kHeadDim * static_cast<double>(length) * static_cast<double>(length) / 2;
    const std::vector<ops::AttentionSegment> all = {{0, length, 0, length, true}};
    bench.add("attention_forward", 0, flops,
              [&] { ops::attention_forward(s, q, k, v, all, 0.09f, out, lse); });
    ops::attention_delta(s, q, out, delta);
    bench.add("attention_backward", 0, 2.5 * flops,
              [&] { ops::attention_backward(s, q, q, k, v, lse, delta, all, 0.09f, dq, dk, dv); });
}

json run(const GpuBench& on) {
    const DeviceInfo& info = on.info;
    Bench bench(on.gpu, on.small ? kSmall : Sizes{});
    bench.add_copy(bench.sizes().elements);
    rows_of_tokens(bench);
    losses_and_optimizer(bench);
    weights(bench);
    decode(bench);
    bench.add_copy(bench.sizes().elements);
    products(bench);
    products_of_few_rows(bench);
    attention(bench);
    return report(info, bench.rows());
}

}  // namespace
}  // namespace tandem

int main(int count, char** arguments) {
    return tandem::run_gpu_bench("ops_gpu_bench", count, arguments, tandem::run);
}
