// delta_encode, delta_apply and quantize: 128 MiB of bfloat16 in runs of 1 MiB, against a plain streamed copy
// of the same bytes. Rates count the dense bytes.
#include <algorithm>
#include <cstring>
#include <random>

#include "common/ops/delta.h"
#include "common/ops/quantize.h"
#include "tests/bench/ops/bench.h"
#include "tests/support/dequantize.h"

namespace tandem::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{128} << 20;
constexpr std::size_t kRun = std::size_t{1} << 20;

struct Rows {
    Table& table;
    std::function<void()> copy;

    void add(const std::string& what, const std::function<void()>& body) {
        const InTurns turns = in_turns(body, copy, 5);
        table.rows.push_back({what, turns.ms, static_cast<double>(kBytes) / turns.ms * 1e-6, "GB/s",
                              turns.ratio, "streamed copy"});
    }
};

// Flips a bit of each element with the probability `fraction`; a second call takes it back.
void change(const Tensor& values, double fraction) {
    std::minstd_rand generator(1);
    std::bernoulli_distribution changes(fraction);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
        if (changes(generator)) values.data<bfloat16>()[i].bits ^= 1;
    }
}

ops::DeltaResult encode(const Tensor& from, const Tensor& base, const Tensor& to, std::size_t at) {
    const std::size_t from_at = at * dtype_size(from.dtype()) / 2;
    return ops::delta_encode(
        {from.raw() + from_at, 0, 1, static_cast<std::int64_t>(kRun / 2), from.dtype(), DType::bfloat16},
        {base.raw() + at, kRun}, {to.raw() + at, kRun});
}

void delta_rows(Rows& rows, const Tensor& source, const Tensor& base, const Tensor& to, double fraction) {
    const std::string name = fmt::format(", {:g}% changed", fraction * 100);
    std::memcpy(base.raw(), source.raw(), kBytes);
    // Back and forth: an encoding brings base up to what it was compared with.
    std::vector<ops::DeltaResult> results(kBytes / kRun);
    std::size_t bytes = 0;
    const Tensor changed = Tensor::zeros(source.shape(), DType::bfloat16, "bench");
    std::memcpy(changed.raw(), source.raw(), kBytes);
    change(changed, fraction);
    bool forth = true;
    rows.add("delta_encode" + name, [&] {
        bytes = 0;
        for (std::size_t i = 0; i < results.size(); ++i) {
            results[i] = encode(forth ? changed : source, base, to, i * kRun);
            bytes += results[i].bytes;
        }
        forth = !forth;
    });
    rows.table.rows.back().what +=
        fmt::format(" ({:.2f}% of the bytes)", 100.0 * static_cast<double>(bytes) / kBytes);
    const Tensor& now = forth ? source : changed;  // what base holds
    const Tensor& before = forth ? changed : source;
    if (std::memcmp(base.raw(), now.raw(), kBytes) != 0) throw Error("delta_encode is wrong");
    if (fraction == 0) return;
    std::memcpy(base.raw(), before.raw(), kBytes);
    rows.add("delta_apply" + name, [&] {
        for (std::size_t i = 0; i < results.size(); ++i) {
            ops::delta_apply(results[i].codec, {to.raw() + i * kRun, results[i].bytes}, 2, 1, kRun / 2,
                             base.raw() + i * kRun, 0);
        }
    });
    if (std::memcmp(base.raw(), now.raw(), kBytes) != 0) throw Error("delta_apply is wrong");
}

void quantize_rows(Rows& rows, const Tensor& source, const Tensor& to, ops::Quantization kind,
                   const char* name) {
    const std::int64_t columns = 4096, row_count = source.numel() / columns;
    const ops::ScaleGrid grid{kind, row_count, columns};
    const ops::WeightBox box{
        source.raw(), static_cast<std::size_t>(columns) * 2, DType::bfloat16, 0, 0, row_count, columns};
    std::vector<float> scales(static_cast<std::size_t>(grid.scale_rows() * grid.scale_columns()));
    rows.add(std::string("amax, ") + name, [&] { ops::accumulate_amax(box, grid, scales); });
    ops::amax_to_scale(grid, scales);
    rows.add(std::string("quantize + checksum, ") + name, [&] {
        ops::quantize(box, grid, scales, {to.raw(), kBytes / 2});
    });
    const float value = static_cast<float>(source.data<bfloat16>()[0]);
    const float back = test::dequantize(static_cast<std::uint8_t>(to.raw()[0]), kind, scales[0]);
    if (std::abs(value - back) > 16.0f * scales[0]) throw Error("quantize is wrong");
}

}  // namespace

void encode_rows(Table& table) {
    Stream stream = Stream::make_inline();
    const Tensor source = random_tensor({static_cast<std::int64_t>(kBytes / 2)}, DType::bfloat16, 2);
    const Tensor base = Tensor::zeros(source.shape(), DType::bfloat16, "bench");
    const Tensor to = Tensor::zeros(source.shape(), DType::bfloat16, "bench");
    const Tensor copied = Tensor::zeros(source.shape(), DType::bfloat16, "bench");
    Rows rows{
        table, [&] {
            for (std::size_t at = 0; at < kBytes; at += kRun) {
                const ops::CopyItem item{.from = {source.raw() + at, kRun}, .to = {copied.raw() + at, kRun}};
                ops::batched_copy(stream, std::span(&item, 1));
            }
        }};
    rows.add("copy, streamed, 1 MiB runs", rows.copy);
    for (const double fraction : {0.0, 0.01, 0.2}) delta_rows(rows, source, base, to, fraction);
    quantize_rows(rows, source, to, ops::Quantization::fp8_block, "fp8 blocks");
    quantize_rows(rows, source, to, ops::Quantization::int8_channel, "int8 channels");
}

}  // namespace tandem::bench
