#include "tests/bench/gpu/op_bench.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

#include "common/ops/elementwise.h"
#include "common/stopwatch.h"

namespace tandem {

using nlohmann::json;

namespace {

constexpr double kBar = 0.85;

}  // namespace

double Row::median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
}

Tensor OpBench::random(Shape shape, DType dtype) {
    std::mt19937 engine(static_cast<unsigned>(++seed_));
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    Tensor host = Tensor::empty({1 << 20}, DType::float32, "bench");
    for (float& value : host.values<float>()) value = uniform(engine);
    Tensor pattern = host.to(stream_, stream_.device(), "bench");
    if (dtype != DType::float32) {
        Tensor narrow = Tensor::empty(stream_, {1 << 20}, dtype, "bench");
        ops::cast(stream_, pattern, narrow);
        pattern = narrow;
    }
    Tensor result = Tensor::empty(stream_, std::move(shape), dtype, "bench");
    for (std::size_t at = 0; at < result.bytes(); at += pattern.bytes()) {
        const std::size_t bytes = std::min(pattern.bytes(), result.bytes() - at);
        copy(stream_, pattern.span().subspan(0, bytes), result.span().subspan(at, bytes));
    }
    stream_.synchronize();
    return result;
}

Tensor OpBench::zeros(Shape shape, DType dtype) {
    return Tensor::zeros(stream_, std::move(shape), dtype, "bench");
}

Row& OpBench::add(std::string name, double bytes, double flops, const std::function<void()>& work) {
    work();
    stream_.synchronize();
    const int calls = std::clamp(static_cast<int>(0.02 / time(work, 3)), 3, 2000);
    Row row{std::move(name), bytes, flops, true, {}};
    for (int run = 0; run < 7; ++run) row.seconds.push_back(time(work, calls));
    rows_.push_back(std::move(row));
    return rows_.back();
}

void OpBench::add_copy(std::int64_t elements) {
    const Tensor from = random({elements}, DType::float32);
    const Tensor to = zeros(from.shape(), DType::float32);
    add("copy", 2.0 * static_cast<double>(from.bytes()), 0, [&] {
        copy(stream_, from.span(), to.span());
    }).barred = false;
}

double OpBench::time(const std::function<void()>& work, int calls) {
    stream_.synchronize();
    const Stopwatch watch;
    for (int i = 0; i < calls; ++i) work();
    stream_.synchronize();
    return watch.seconds() / calls;
}

json report(const DeviceInfo& info, const std::vector<Row>& rows) {
    double copy_rate = 0.0;
    for (const Row& row : rows)
        if (row.name == "copy") copy_rate = std::max(copy_rate, row.bytes / row.median());
    double peak = 0.0;
    for (const Row& row : rows) peak = std::max(peak, row.flops / row.median());
    json result = {{"gpu", info.name},
                   {"capability", info.capability},
                   {"copy_bytes_per_s", copy_rate},
                   {"product_flops_per_s", peak},
                   {"bar", kBar},
                   {"rows", json::array()}};
    std::vector<std::string> below;
    fmt::print("{}\n{:42} {:>10} {:>10} {:>8}\n", info.name, "op", "µs", "GB/s", "of copy");
    for (const Row& row : rows) {
        const double seconds = row.median();
        json entry = {{"name", row.name}, {"seconds", seconds}, {"all_seconds", row.seconds}};
        if (row.flops > 0) {
            entry["flops_per_s"] = row.flops / seconds;
            entry["of_peak"] = row.flops / seconds / peak;
            fmt::print("{:42} {:10.1f} {:7.1f} TFLOP/s {:6.1f}% of peak\n", row.name, seconds * 1e6,
                       row.flops / seconds / 1e12, 100 * row.flops / seconds / peak);
        } else {
            entry["bytes_per_s"] = row.bytes / seconds;
            const double of_copy = row.bytes / seconds / copy_rate;
            entry["of_copy"] = of_copy;
            if (row.barred) entry["met"] = of_copy >= kBar;
            if (row.barred && of_copy < kBar) below.push_back(row.name);
            fmt::print("{:42} {:10.1f} {:10.1f} {:7.1f}% {}\n", row.name, seconds * 1e6,
                       row.bytes / seconds / 1e9, 100 * of_copy,
                       !row.barred ? "" : (of_copy >= kBar ? "met" : "BELOW"));
        }
        result["rows"].push_back(std::move(entry));
    }
    result["below"] = below;
    fmt::print(
        "{:.0f}% of the copy: {}\n", 100 * kBar,
        below.empty() ? "met by all" : fmt::format("missed by {}: {}", below.size(), fmt::join(below, "; ")));
    return result;
}

}  // namespace tandem
