#include "common/ops/cpu/matmul_primitive.h"

#include <map>
#include <mutex>
#include <string_view>

#include "common/error.h"

namespace tandem::ops::detail {
namespace {

using dnnl::memory;

constexpr std::size_t kMaxPrimitives = 4096;  // per thread; past it the cache starts anew
constexpr std::int64_t kUsualRows = 16;       // the layout is the one that oneDNN likes for so many rows

dnnl::engine& engine() {
    static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
    return instance;
}

dnnl::stream& stream() {
    thread_local dnnl::stream instance(engine());
    return instance;
}

memory::data_type to_dnnl(DType dtype) {
    return dtype == DType::float32 ? memory::data_type::f32 : memory::data_type::bf16;
}

// oneDNN shares finished primitives between threads through a cache of its own, with a synchronisation that
// the thread sanitizer cannot see. Making one is rare: under a lock, it can.
std::mutex& making() {
    static std::mutex mutex;
    return mutex;
}

memory::desc plain(std::int64_t rows, std::int64_t columns, DType dtype, bool transposed) {
    return {{rows, columns}, to_dnnl(dtype), transposed ? memory::format_tag::ba : memory::format_tag::ab};
}

bool is_blocked(const dnnl::matmul::primitive_desc& description) {
    return std::string_view(description.impl_info_str()).starts_with("brg");
}

memory::desc find_packed_layout(std::int64_t n, std::int64_t k, DType dtype) {
    const memory::desc a = plain(kUsualRows, k, dtype, false);
    const memory::desc any({k, n}, to_dnnl(dtype), memory::format_tag::any);
    const memory::desc c = plain(kUsualRows, n, dtype, false);
    const dnnl::matmul::primitive_desc description({a, any, c}, dnnl::primitive_attr(), engine(), true);
    return description && is_blocked(description) ? description.weights_desc() : memory::desc();
}

MatmulPrimitive make_primitive(const MatmulProblem& p) {
    const memory::desc a = plain(p.m, p.k, p.input, p.transpose_a);
    const memory::desc b = p.b == WeightLayout::packed
                               ? find_packed_layout(p.n, p.k, p.input)
                               : plain(p.k, p.n, p.input, p.b == WeightLayout::columns);
    const memory::desc c = plain(p.m, p.n, p.output, false);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
        dnnl::post_ops sum;
        sum.append_sum(1.0f);
        attributes.set_post_ops(sum);
    }
    MatmulPrimitive result;
    const memory::desc bias({1, p.n}, to_dnnl(p.input), memory::format_tag::ab);
    const auto product = p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    result.description = dnnl::matmul::primitive_desc(product, attributes, engine(), true);
    if (!result.description) return result;
    result.blocked = is_blocked(result.description);
    // The plain reference loops would be far slower than widening to fp32.
    result.supported = result.blocked || p.input == DType::float32;
    if (!result.supported) return result;
    result.primitive = dnnl::matmul(result.description);
    result.a = memory(a, engine(), nullptr);
    result.b = memory(b, engine(), nullptr);
    result.c = memory(c, engine(), nullptr);
    result.scratch.resize(result.description.scratchpad_desc().get_size());
    result.scratchpad = memory(result.description.scratchpad_desc(), engine(), result.scratch.data());
    result.arguments = {{{DNNL_ARG_SRC, result.a.get()},
                         {DNNL_ARG_WEIGHTS, result.b.get()},
                         {DNNL_ARG_DST, result.c.get()},
                         {DNNL_ARG_SCRATCHPAD, result.scratchpad.get()}}};
    result.argument_count = 4;
    if (p.bias) {
        result.bias = memory(bias, engine(), nullptr);
        result.arguments[4] = {DNNL_ARG_BIAS, result.bias.get()};
        result.argument_count = 5;
    }
    return result;
}

}  // namespace

MatmulPrimitive& matmul_primitive(const MatmulProblem& problem) {
    thread_local std::map<decltype(problem.key()), MatmulPrimitive> cache;
    const auto found = cache.find(problem.key());
    if (found != cache.end()) return found->second;
    if (cache.size() >= kMaxPrimitives) cache.clear();
    const std::lock_guard lock(making());
    return cache.emplace(problem.key(), make_primitive(problem)).first->second;
}

void execute(MatmulPrimitive& primitive, std::byte* a, std::byte* b, std::byte* bias, std::byte* c) {
    primitive.a.set_data_handle(a);
    primitive.b.set_data_handle(b);
    primitive.c.set_data_handle(c);
    if (bias != nullptr) primitive.bias.set_data_handle(bias);
    // The C call: the C++ one builds a map and a vector each time.
    const dnnl_status_t status = dnnl_primitive_execute(primitive.primitive.get(), stream().get(),
                                                        primitive.argument_count, primitive.arguments.data());
    if (status != dnnl_success) throw Error(fmt::format("oneDNN could not run a product: status {}", status));
    stream().wait();
}

memory::desc packed_layout(std::int64_t n, std::int64_t k, DType dtype) {
    const std::lock_guard lock(making());
    return find_packed_layout(n, k, dtype);
}

void pack_weight(std::int64_t n, std::int64_t k, DType dtype, std::byte* from, std::byte* to) {
    memory source(plain(k, n, dtype, true), engine(), from);
    memory target(packed_layout(n, k, dtype), engine(), to);
    const auto reorder = [&] {
        const std::lock_guard lock(making());
        return dnnl::reorder(source, target);
    }();
    reorder.execute(stream(), source, target);
    stream().wait();
}

}  // namespace tandem::ops::detail
