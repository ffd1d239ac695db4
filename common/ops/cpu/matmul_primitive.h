// oneDNN's matmul primitives, one a problem, kept per thread; and the layout that they like weights in.
#pragma once

#include <dnnl.h>

#include <array>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <vector>

#include "common/tensor/tensor.h"

namespace tandem::ops::detail {

// How the right-hand side lies in memory.
enum class WeightLayout : std::uint8_t {
    rows,     // [k, n]
    columns,  // [n, k]: a weight [out, in] as it is stored
    packed,   // as packed_layout says
};

struct MatmulProblem {
    std::int64_t m, n, k;
    bool transpose_a;
    WeightLayout b;
    bool accumulate, bias;
    DType input, output;
    int threads;  // the kernel's plan depends on it
    auto key() const { return std::tuple(m, n, k, transpose_a, b, accumulate, bias, input, output, threads); }
};

struct MatmulPrimitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
    dnnl::memory a, b, bias, c, scratchpad;
    std::vector<std::byte> scratch;
    std::array<dnnl_exec_arg_t, 5> arguments{};
    int argument_count = 0;
    bool supported = false;
    bool blocked = false;  // one of oneDNN's own kernels, not its GEMM
};

// Of this thread; valid until it asks for the next one.
MatmulPrimitive& matmul_primitive(const MatmulProblem& problem);
// bias may be null where the problem has none.
void execute(MatmulPrimitive& primitive, std::byte* a, std::byte* b, std::byte* bias, std::byte* c);

// The one layout of a weight [n, k] that oneDNN's blocked kernels read without packing it first, whatever m
// is; zero when this machine has none for the dtype.
dnnl::memory::desc packed_layout(std::int64_t n, std::int64_t k, DType dtype);
// from: [n, k] rows; to: packed_layout(n, k, dtype).get_size() bytes.
void pack_weight(std::int64_t n, std::int64_t k, DType dtype, std::byte* from, std::byte* to);

}  // namespace tandem::ops::detail

namespace tandem::ops::cpu {

// linear with a copy of the weight in its packed layout, which must live until the stream is past it; none:
// empty.
void linear_packed(Stream& stream, const Tensor& x, const Tensor& weight, Span packed, const Tensor& bias,
                   Tensor y);

}  // namespace tandem::ops::cpu
