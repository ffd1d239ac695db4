// Matrix multiplication on the CPU. With a plain left operand it is cut into pieces that give a row the same
// bits beside any other rows (product.h); with a transposed one (gradients of weights) the library is free.
#include "common/ops/matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/ops/cpu/packed_products.h"
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

std::vector<float> as_float(const Tensor& tensor) {
    std::vector<float> result(static_cast<std::size_t>(tensor.numel()));
    if (tensor.dtype() == DType::bfloat16) {
        detail::widen(tensor.data<bfloat16>(), result.data(), tensor.numel());
    } else if (!result.empty()) {
        std::memcpy(result.data(), tensor.raw(), tensor.bytes());
    }
    return result;
}

std::byte* raw(std::vector<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
}

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

// For machines without bfloat16 kernels; with a plain left operand `multiply` has done it.
void run_widened(PlainProduct p, bool transpose_a, const Tensor& a, const Tensor& b, const Tensor& c) {
    std::vector<float> wide_a = as_float(a), wide_b = as_float(b), wide_c;
    p.input = p.output = DType::float32;
    p.a = raw(wide_a);
    p.b = raw(wide_b);
    if (c.dtype() == DType::bfloat16) {
        wide_c = as_float(c);
        p.c = raw(wide_c);
    }
    const bool done = run(p, transpose_a);
    require(done, "no float32 products on this machine");
    if (c.dtype() == DType::bfloat16) detail::narrow(wide_c.data(), c.data<bfloat16>(), c.numel());
}

// Rows of zeros, or of the bias: a product over nothing.
void fill_rows(const Tensor& bias, const Tensor& c) {
    if (!bias.defined()) {
        std::memset(c.raw(), 0, c.bytes());
        return;
    }
    const std::vector<float> row = as_float(bias);
    const std::int64_t columns = c.dim(1);
    std::vector<float> scratch(row.size());
    for (std::int64_t at = 0; at < c.numel(); at += columns) {
        float* const to = detail::begin_row(c, at, scratch.data());
        std::copy(row.begin(), row.end(), to);
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
        if (!run(p, transpose_a)) run_widened(p, transpose_a, a, b, c);
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
