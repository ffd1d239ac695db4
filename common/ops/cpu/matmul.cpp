// Matrix products through oneDNN's matmul primitive.
//
// Batch invariance rests on oneDNN's blocked kernels ("brg:..."): they sum a row of c over k in an order that
// depends on (n, k) only, which the tests check over m. Where oneDNN has no such kernel (no AVX-512) its GEMM
// treats the last rows apart, so there the product is cut into blocks of a fixed number of rows, the last one
// padded.
#include "common/ops/matmul.h"

#include <omp.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "common/ops/backends.h"
#include "common/ops/checks.h"
#include "common/ops/cpu/check.h"
#include "common/ops/cpu/matmul_primitive.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops {
namespace {

using detail::MatmulPrimitive;
using detail::MatmulProblem;
using detail::WeightLayout;

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

constexpr std::int64_t kGemmRows = 24;  // rows of a block where oneDNN has no blocked kernel

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

// fp32 on a machine without blocked kernels: always blocks of kGemmRows rows, the last one padded.
void run_float(MatmulProblem p, std::byte* a, std::byte* b, std::byte* bias, std::byte* c) {
    MatmulPrimitive& whole = detail::matmul_primitive(p);
    if (whole.blocked || p.transpose_a) return execute(whole, a, b, bias, c);
    const std::int64_t rows = p.m;
    p.m = kGemmRows;
    MatmulPrimitive& block = detail::matmul_primitive(p);
    const std::size_t a_row = static_cast<std::size_t>(p.k) * sizeof(float);
    const std::size_t c_row = static_cast<std::size_t>(p.n) * sizeof(float);
    std::int64_t row = 0;
    for (; row + kGemmRows <= rows; row += kGemmRows) {
        const auto at = static_cast<std::size_t>(row);
        execute(block, a + at * a_row, b, bias, c + at * c_row);
    }
    if (row == rows) return;
    const auto at = static_cast<std::size_t>(row);
    const auto rest = static_cast<std::size_t>(rows - row);
    std::vector<float> padded_a(static_cast<std::size_t>(kGemmRows * p.k));
    std::vector<float> padded_c(static_cast<std::size_t>(kGemmRows * p.n));
    std::memcpy(padded_a.data(), a + at * a_row, rest * a_row);
    if (p.accumulate) std::memcpy(padded_c.data(), c + at * c_row, rest * c_row);
    execute(block, raw(padded_a), b, bias, raw(padded_c));
    std::memcpy(c + at * c_row, padded_c.data(), rest * c_row);
}

// packed: b in its packed layout, or null.
void run(MatmulProblem p, const Tensor& a, const Tensor& b, std::byte* packed, const Tensor& bias,
         const Tensor& c) {
    std::byte* const bias_raw = p.bias ? bias.raw() : nullptr;
    omp_set_num_threads(p.threads);  // of the calling thread: the setting is per thread
    if (packed != nullptr) {
        MatmulProblem with_packed = p;
        with_packed.b = WeightLayout::packed;
        MatmulPrimitive& primitive = detail::matmul_primitive(with_packed);
        if (primitive.blocked) return execute(primitive, a.raw(), packed, bias_raw, c.raw());
    }
    if (p.input == DType::float32) return run_float(p, a.raw(), b.raw(), bias_raw, c.raw());
    MatmulPrimitive& primitive = detail::matmul_primitive(p);
    if (primitive.supported) return execute(primitive, a.raw(), b.raw(), bias_raw, c.raw());
    // No bfloat16 products on this machine: widen.
    p.input = DType::float32;
    p.output = DType::float32;
    std::vector<float> wide_a = as_float(a);
    std::vector<float> wide_b = as_float(b);
    std::vector<float> wide_bias = p.bias ? as_float(bias) : std::vector<float>();
    std::byte* const wide_bias_raw = p.bias ? raw(wide_bias) : nullptr;
    if (c.dtype() == DType::float32) return run_float(p, raw(wide_a), raw(wide_b), wide_bias_raw, c.raw());
    std::vector<float> wide_c = as_float(c);
    run_float(p, raw(wide_a), raw(wide_b), wide_bias_raw, raw(wide_c));
    detail::narrow(wide_c.data(), c.data<bfloat16>(), c.numel());
}

void product(const char* op, Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b,
             bool transpose_b, const Tensor& bias, const Tensor& c, bool accumulate,
             std::byte* packed_b = nullptr) {
    checks::product(op, a, transpose_a, b, transpose_b, bias, c);
    const MatmulProblem problem{.m = transpose_a ? a.dim(1) : a.dim(0),
                                .n = transpose_b ? b.dim(0) : b.dim(1),
                                .k = transpose_a ? a.dim(0) : a.dim(1),
                                .transpose_a = transpose_a,
                                .b = transpose_b ? WeightLayout::columns : WeightLayout::rows,
                                .accumulate = accumulate,
                                .bias = bias.defined(),
                                .input = a.dtype(),
                                .output = c.dtype(),
                                .threads = 1};
    stream.enqueue([p = problem, a, b, packed_b, bias, c]() mutable {
        if (p.m == 0 || p.n == 0) return;
        if (p.k == 0) {
            if (!p.accumulate) std::memset(c.raw(), 0, c.bytes());
            return;
        }
        p.threads = compute_threads();
        run(p, a, b, packed_b, bias, c);
    });
}

}  // namespace

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    product("matmul", stream, a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, {}, c,
            accumulate);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    product("linear", stream, x, false, weight, true, bias, y, false);
}

void linear_packed(Stream& stream, const Tensor& x, const Tensor& weight, Span packed, const Tensor& bias,
                   Tensor y) {
    product("linear", stream, x, false, weight, true, bias, y, false, packed.data);
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    product("linear_backward_input", stream, dy, false, weight, false, {}, dx, accumulate);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight) {
    detail::check_dtype("linear_backward_weight", "dweight", dweight, DType::float32);
    product("linear_backward_weight", stream, dy, true, x, false, {}, dweight, true);
}

}  // namespace cpu
}  // namespace tandem::ops
