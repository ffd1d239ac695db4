// batched_copy against memcpy: 256 MiB buffers, touched before.
#include <cstring>

#include "common/ops/batched_copy.h"
#include "tests/bench/ops/bench.h"

namespace tandem::bench {
namespace {

constexpr std::size_t kBytes = std::size_t{256} << 20;

void add(Table& table, const char* what, std::size_t bytes, const std::function<void()>& body) {
    const double ms = median_ms(body, 5);
    const double rate = static_cast<double>(bytes) / ms * 1e-6;
    if (table.copy_rate == 0) table.copy_rate = rate;
    table.rows.push_back({what, ms, rate, "GB/s", rate / table.copy_rate, "memcpy"});
}

}  // namespace

// Rates count the bytes read.
void copy_rows(Table& table) {
    Stream stream = Stream::make_inline();
    const Tensor from = random_tensor({static_cast<std::int64_t>(kBytes / 4)}, DType::float32, 1);
    const Tensor to = Tensor::zeros(from.shape(), DType::float32, "bench");
    ops::Checksum sum;
    const auto copy = [&](std::size_t to_bytes, DType to_dtype, bool checksum, bool non_temporal) {
        return [&stream, &sum, from, to, to_bytes, to_dtype, checksum, non_temporal] {
            const ops::CopyItem item{.from = from.span(),
                                     .to = {to.raw(), to_bytes},
                                     .from_dtype = DType::float32,
                                     .to_dtype = to_dtype,
                                     .checksum = checksum ? &sum : nullptr,
                                     .non_temporal = non_temporal};
            ops::batched_copy(stream, std::span(&item, 1));
        };
    };
    copy(kBytes, DType::float32, true, true)();
    if (std::memcmp(from.raw(), to.raw(), kBytes) != 0 || sum != ops::checksum(from.span())) {
        throw Error("batched_copy is wrong");
    }
    add(table, "memcpy", kBytes, [&] { std::memcpy(to.raw(), from.raw(), kBytes); });
    add(table, "copy, streamed", kBytes, copy(kBytes, DType::float32, false, true));
    add(table, "copy, cached", kBytes, copy(kBytes, DType::float32, false, false));
    add(table, "copy + checksum, streamed", kBytes, copy(kBytes, DType::float32, true, true));
    add(table, "cast to bfloat16, streamed", kBytes, copy(kBytes / 2, DType::bfloat16, false, true));
    add(table, "cast to bfloat16 + checksum, streamed", kBytes,
        copy(kBytes / 2, DType::bfloat16, true, true));
    add(table, "copy + checksum, rows of 4 KiB of 8", kBytes / 2, [&] {
        ops::CopyItem item{.from = {from.raw(), 4096}, .to = {to.raw(), 4096}, .checksum = &sum};
        item.rows = kBytes / 8192;
        item.from_stride = 8192;
        item.to_stride = 4096;
        ops::batched_copy(stream, std::span(&item, 1));
    });
    add(table, "checksum alone", kBytes, [&] { sum = ops::checksum(from.span()); });
}

}  // namespace tandem::bench
