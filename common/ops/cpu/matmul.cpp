// Matrix multiplication on the CPU. With a plain left operand it is cut into pieces that give a row the same
// bits beside any other rows (product.h); with a transposed one (gradients of weights) the library is free.
#include "common/ops/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "common/align.h"
#include "common/error.h"
#include "common/ops/cpu/lines.h"
#include "common/ops/cpu/packed_products.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/product.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops {
namespace {

std::atomic<int> compute_threads_now{1};

}  // namespace

void set_compute_threads(int threads) {
    require(threads >= 1, "set_compute_threads: {} threads", threads);
    compute_threads_now.store(threads);
}

int compute_threads() {
    return compute_threads_now.load();
}

namespace cpu {
namespace {

using detail::PlainProduct;
using detail::WeightLayout;

// Returns false, with c untouched, if the library has no fast kernel.
bool run(const PlainProduct& p, bool transpose_a) {
    if (!transpose_a) return detail::multiply(detail::machine_products(), p);
    detail::ProductKernel* const kernel =
        detail::product_kernel(detail::machine_products(), {.m = p.m,
                                                            .transpose_a = true,
                                                            .b = {p.n, p.k, p.input, p.layout},
                                                            .accumulate = p.accumulate,
                                                            .output = p.output,
                                                            .threads = p.threads});
    if (kernel == nullptr) return false;
    kernel->run(p.a, p.b, p.c);
    return true;
}

const bfloat16* halves(const std::byte* from) {
    return reinterpret_cast<const bfloat16*>(from);
}
float* floats(std::byte* from) {
    return reinterpret_cast<float*>(from);
}
std::size_t float_bytes(std::int64_t elements) {
    return static_cast<std::size_t>(elements) * sizeof(float);
}

// Rows [first, first + rows) of c = aᵀ · b, on this thread. Their columns of a are widened, c too where it is bfloat16.
void run_widened_rows(const PlainProduct& p, const std::byte* wide_b, std::int64_t first, std::int64_t rows) {
    thread_local detail::Lines left, sums;
    left.reserve(float_bytes(p.k * rows));
    for (std::int64_t i = 0; i < p.k; ++i)
        detail::widen(halves(p.a) + i * p.m + first, floats(left.data()) + i * rows, rows);
    const bool wide_c = p.output == DType::float32;
    const std::int64_t count = rows * p.n;
    std::byte* const c = p.c + static_cast<std::size_t>(first * p.n) * dtype_size(p.output);
    if (!wide_c) sums.reserve(float_bytes(count));
    std::byte* const to = wide_c ? c : sums.data();
    if (!wide_c && p.accumulate) detail::widen(halves(c), floats(to), count);
    const bool done = run({.m = rows,
                           .n = p.n,
                           .k = p.k,
                           .input = DType::float32,
                           .output = DType::float32,
                           .a = left.data(),
                           .b = wide_b,
                           .layout = p.layout,
                           .packed = nullptr,
                           .bias = nullptr,
                           .c = to,
                           .accumulate = p.accumulate,
                           .threads = 1},
                          true);
    require(done, "no float32 products on this machine");
    if (!wide_c) detail::narrow(floats(to), reinterpret_cast<bfloat16*>(c), count);
}

// c = aᵀ · b for machines without bfloat16 kernels: b widened once, then c's rows in pieces whose part of a a core's
// cache holds. (With a plain left operand `multiply` has done it.)
void run_widened(const PlainProduct& p) {
    constexpr std::size_t kPieceBytes = 512 << 10, kKeptBytes = 64 << 20;
    constexpr std::int64_t kUnit = 64, kMostRows = 256, kFewestRows = 16;
    thread_local detail::Lines wide_b;
    wide_b.reserve(float_bytes(p.k * p.n));
    detail::widen_on_threads(halves(p.b), floats(wide_b.data()), p.k * p.n);
    const auto fit = static_cast<std::int64_t>(kPieceBytes / float_bytes(p.k)) / kUnit * kUnit;
    const std::int64_t share = round_up((p.m + p.threads - 1) / p.threads, kFewestRows);  // of a thread
    const std::int64_t rows = std::min(std::clamp(fit, kUnit, kMostRows), share);
    detail::parallel_for((p.m + rows - 1) / rows, p.threads, [&, b = wide_b.data()](std::int64_t piece) {
        run_widened_rows(p, b, piece * rows, std::min(rows, p.m - piece * rows));
    });
    if (wide_b.bytes() > kKeptBytes) wide_b = detail::Lines();
}

// Rows of zeros, or of the bias: a product over nothing.
void fill_rows(const Tensor& bias, const Tensor& c) {
    if (!bias.defined()) {
        std::memset(c.raw(), 0, c.bytes());
        return;
    }
    const std::int64_t columns = c.dim(1);
    std::vector<float> wide(static_cast<std::size_t>(columns)), scratch(wide.size());
    const float* const row = detail::read_row(bias, 0, columns, wide.data());
    for (std::int64_t at = 0; at < c.numel(); at += columns) {
        float* const to = detail::begin_row(c, at, scratch.data());
        std::copy_n(row, columns, to);
        detail::finish_row(c, at, columns, to);
    }
}

PlainProduct product_of(const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                        const Tensor& bias, const Tensor& c, bool accumulate,
                        const std::byte* packed_b = nullptr) {
    return {.m = transpose_a ? a.dim(1) : a.dim(0),
            .n = transpose_b ? b.dim(0) : b.dim(1),
            .k = transpose_a ? a.dim(0) : a.dim(1),
            .input = a.dtype(),
            .output = c.dtype(),
            .a = a.raw(),
            .b = b.raw(),
            .layout = transpose_b ? WeightLayout::columns : WeightLayout::rows,
            .packed = packed_b,
            .bias = bias.defined() ? bias.raw() : nullptr,
            .c = c.raw(),
            .accumulate = accumulate,
            .threads = compute_threads()};
}

void product(Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
             const Tensor& bias, const Tensor& c, bool accumulate) {
    stream.enqueue([transpose_a, a, b, transpose_b, bias, c, accumulate] {
        const PlainProduct p = product_of(a, transpose_a, b, transpose_b, bias, c, accumulate);
        if (p.m == 0 || p.n == 0) return;
        if (p.k == 0) {
            if (!p.accumulate) fill_rows(bias, c);
            return;
        }
        if (!run(p, transpose_a)) run_widened(p);
    });
}

}  // namespace

std::size_t packed_bytes(const Tensor& weight) {
    return detail::packed_columns_bytes(detail::machine_products(), weight.dim(0), weight.dim(1),
                                        weight.dtype());
}

void pack(const Tensor& weight, std::byte* to) {
    detail::pack_columns(detail::machine_products(), weight.dim(0), weight.dim(1), weight.dtype(),
                         weight.raw(), to);
}

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    product(stream, a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, {}, c, accumulate);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    product(stream, x, false, weight, true, bias, y, false);
}

void linear_packed(Stream& stream, const Tensor& x, std::vector<PackedProjection> projections) {
    stream.enqueue([x, projections = std::move(projections)] {
        if (x.dim(0) == 0) return;
        std::vector<PlainProduct> products;
        for (const PackedProjection& p : projections)
            products.push_back(product_of(x, false, p.weight, true, p.bias, p.y, false, p.packed.data));
        const bool done = detail::multiply(detail::machine_products(), products);
        require(done, "no products of packed {} on this machine", dtype_name(x.dtype()));
    });
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    product(stream, dy, false, weight, false, {}, dx, accumulate);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight,
                            bool accumulate) {
    product(stream, dy, true, x, false, {}, dweight, accumulate);
}

}  // namespace cpu
}  // namespace tandem::ops
