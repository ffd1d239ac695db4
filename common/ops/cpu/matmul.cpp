// Matrix products through oneDNN's matmul primitive. One primitive a shape, kept per thread.
//
// Batch invariance rests on oneDNN's blocked kernels ("brg:..."): they sum a row of c over k in an order that
// depends on (n, k) only, which the tests check over m. Where oneDNN has no such kernel (no AVX-512) its GEMM
// treats the last rows apart, so there the product is cut into blocks of a fixed number of rows, the last one
// padded.
#include "common/ops/matmul.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "common/ops/backends.h"
#include "common/ops/cpu/check.h"
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

constexpr std::int64_t kGemmRows = 24;        // rows of a block where oneDNN has no blocked kernel
constexpr std::size_t kMaxPrimitives = 4096;  // per thread; past it the cache starts anew

struct Problem {
    std::int64_t m, n, k;
    bool transpose_a, transpose_b, accumulate, bias;
    DType input, output;
    int threads;  // the kernel's plan depends on it
    auto key() const {
        return std::tuple(m, n, k, transpose_a, transpose_b, accumulate, bias, input, output, threads);
    }
};

dnnl::engine& engine() {
    static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
    return instance;
}

dnnl::memory::data_type to_dnnl(DType dtype) {
    return dtype == DType::float32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

struct Primitive {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
    dnnl::memory a, b, bias, c, scratchpad;
    std::vector<std::byte> scratch;
    bool supported = false;
    bool blocked = false;  // one of oneDNN's own kernels, not its GEMM
};

Primitive make_primitive(const Problem& p) {
    using dnnl::memory;
    const auto layout = [](bool transposed) {
        return transposed ? memory::format_tag::ba : memory::format_tag::ab;
    };
    const memory::desc a({p.m, p.k}, to_dnnl(p.input), layout(p.transpose_a));
    const memory::desc b({p.k, p.n}, to_dnnl(p.input), layout(p.transpose_b));
    const memory::desc c({p.m, p.n}, to_dnnl(p.output), memory::format_tag::ab);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
    Primitive result;
    const memory::desc bias({1, p.n}, to_dnnl(p.input), memory::format_tag::ab);
    const auto product = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    result.description = dnnl::matmul::primitive_desc(product, attributes, engine(), true);
    if (!result.description) return result;
    const std::string_view implementation = result.description.impl_info_str();
    result.blocked = implementation.starts_with("brg");
    // The plain reference loops would be far slower than widening to fp32.
    result.supported = result.blocked || p.input == DType::float32;
    if (!result.supported) return result;
    result.primitive = dnnl::matmul(result.description);
    result.a = memory(a, engine(), nullptr);
    result.b = memory(b, engine(), nullptr);
    result.c = memory(c, engine(), nullptr);
    if (p.bias) result.bias = memory(bias, engine(), nullptr);
    result.scratch.resize(result.description.scratchpad_desc().get_size());
    result.scratchpad = memory(result.description.scratchpad_desc(), engine(), result.scratch.data());
    return result;
}

Primitive& primitive_for(const Problem& p) {
    thread_local std::map<decltype(p.key()), Primitive> cache;
    const auto found = cache.find(p.key());
    if (found != cache.end()) return found->second;
    if (cache.size() >= kMaxPrimitives) cache.clear();
    // oneDNN shares finished primitives between threads through a cache of its own, with a synchronisation
    // that the thread sanitizer cannot see. Making one is rare: under a lock, it can.
    static std::mutex making;
    const std::lock_guard lock(making);
    return cache.emplace(p.key(), make_primitive(p)).first->second;
}

void execute(Primitive& primitive, std::byte* a, std::byte* b, std::byte* bias, std::byte* c) {
    thread_local dnnl::stream stream(engine());
    primitive.a.set_data_handle(a);
    primitive.b.set_data_handle(b);
    primitive.c.set_data_handle(c);
    std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, primitive.a},
                                                    {DNNL_ARG_WEIGHTS, primitive.b},
                                                    {DNNL_ARG_DST, primitive.c},
                                                    {DNNL_ARG_SCRATCHPAD, primitive.scratchpad}};
    if (bias != nullptr) {
        primitive.bias.set_data_handle(bias);
        arguments.emplace(DNNL_ARG_BIAS, primitive.bias);
    }
    primitive.primitive.execute(stream, arguments);
    stream.wait();
}

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
void run_float(Problem p, std::byte* a, std::byte* b, std::byte* bias, std::byte* c) {
    Primitive& whole = primitive_for(p);
    if (whole.blocked || p.transpose_a) return execute(whole, a, b, bias, c);
    const std::int64_t rows = p.m;
    p.m = kGemmRows;
    Primitive& block = primitive_for(p);
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

void run(Problem p, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c) {
    std::byte* const bias_raw = p.bias ? bias.raw() : nullptr;
    omp_set_num_threads(p.threads);  // of the calling thread: the setting is per thread
    if (p.input == DType::float32) return run_float(p, a.raw(), b.raw(), bias_raw, c.raw());
    Primitive& primitive = primitive_for(p);
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

void product(std::string_view op, Stream& stream, const Tensor& a, bool transpose_a, const Tensor& b,
             bool transpose_b, const Tensor& bias, const Tensor& c, bool accumulate) {
    for (const auto& [name, tensor] :
         {std::pair<std::string_view, const Tensor&>{"a", a}, {"b", b}, {"c", c}}) {
        detail::check_floating(op, name, tensor);
        detail::check_ndim(op, name, tensor, 2);
    }
    Problem p{.m = transpose_a ? a.dim(1) : a.dim(0),
              .n = transpose_b ? b.dim(0) : b.dim(1),
              .k = transpose_a ? a.dim(0) : a.dim(1),
              .transpose_a = transpose_a,
              .transpose_b = transpose_b,
              .accumulate = accumulate,
              .bias = bias.defined(),
              .input = a.dtype(),
              .output = c.dtype(),
              .threads = 1};
    require(p.k == (transpose_b ? b.dim(1) : b.dim(0)) && c.shape() == Shape{p.m, p.n},
            "{}: {}{} times {}{} does not give {}", op, to_string(a.shape()), transpose_a ? "^T" : "",
            to_string(b.shape()), transpose_b ? "^T" : "", to_string(c.shape()));
    require(a.dtype() == b.dtype(), "{}: {} {} times {} {}", op, dtype_name(a.dtype()), to_string(a.shape()),
            dtype_name(b.dtype()), to_string(b.shape()));
    require(c.dtype() == DType::float32 || a.dtype() == DType::bfloat16,
            "{}: float32 inputs {} and {} cannot give bfloat16", op, to_string(a.shape()),
            to_string(b.shape()));
    if (p.bias) {
        detail::check_shape(op, "bias", bias, {p.n});
        detail::check_dtype(op, "bias", bias, a.dtype());
        require(p.k > 0, "{}: a bias for {}, which has no columns", op, to_string(a.shape()));
    }
    stream.enqueue([p, a, b, bias, c]() mutable {
        if (p.m == 0 || p.n == 0) return;
        if (p.k == 0) {
            if (!p.accumulate) std::memset(c.raw(), 0, c.bytes());
            return;
        }
        p.threads = compute_threads();
        run(p, a, b, bias, c);
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
