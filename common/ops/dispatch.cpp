// The public functions: checks that hold on every device, then the backend of the stream's device. A GPU that
// computes on the CPU (common/device/cpu_kernels.h) runs the CPU's functions, later, on its memory's aliases.
#include <tuple>

#include "common/device/cpu_kernels.h"
#include "common/device/devices.h"
#include "common/ops/backends.h"
#include "common/ops/checks.h"

namespace tandem::ops {
namespace {

template <typename T>
void check_device(const char*, Device, const T&) {}

void check_device(const char* op, Device device, const Tensor& tensor) {
    require(!tensor.defined() || tensor.numel() == 0 || tensor.device() == device, [&] {
        return fmt::format("{}: a tensor {} {} on {} for a stream on {}", op, dtype_name(tensor.dtype()),
                           to_string(tensor.shape()), to_string(tensor.device()), to_string(device));
    });
}

// What a GPU that computes on the CPU keeps of an argument until its stream is there. As on a GPU, no tensor is kept alive.
template <typename T>
T held(const T& argument) {
    return argument;
}

Tensor held(const Tensor& tensor) {
    return host_alias(tensor);
}

template <typename T>
std::vector<T> held(const std::span<const T>& values) {
    return {values.begin(), values.end()};
}

std::vector<CopyItem> held(const std::span<const CopyItem>& items) {
    std::vector<CopyItem> result(items.begin(), items.end());
    for (CopyItem& item : result) {
        item.from = host_alias(item.from);
        item.to = host_alias(item.to);
    }
    return result;
}

// What a graph would replay are the host's values of now: as on a GPU, where they would be uploaded.
template <typename T>
bool of_host(const T&) {
    return false;
}

template <typename T>
bool of_host(const std::span<T>& values) {
    return !values.empty();
}

template <typename T>
bool of_host(const std::vector<T>& values) {
    return !values.empty();
}

// Where the CPU's functions would look at their arguments too late, or not at all.
bool elsewhere(const Stream& stream) {
    return stream.device().type != DeviceType::cpu;
}

#if TANDEM_WITH_CUDA
bool on_gpu(const Stream& stream) {
    return !computes_on_cpu(stream.device());
}
#endif

template <typename OnCpu, typename OnCuda, typename... Args>
void route(const char* op, Stream& stream, const OnCpu& on_cpu, const OnCuda& on_cuda, const Args&... args) {
    const Device device = stream.device();
    (check_device(op, device, args), ...);
    if (device.type == DeviceType::cpu) {
        on_cpu(stream, args...);
    } else if (computes_on_cpu(device)) {
        require(!recording(stream) || !(of_host(args) || ...),
                "{}: host values in a stream that is being captured; give it tensors on the device", op);
        launch_on_cpu(stream, [on_cpu, arguments = std::tuple(held(args)...)] {
            Stream here = Stream::make_inline();
            std::apply([&](const auto&... argument) { on_cpu(here, argument...); }, arguments);
        });
    } else {
        on_cuda(stream, args...);
    }
}

#if TANDEM_WITH_CUDA
#define TANDEM_ON_CUDA(op) [](Stream& s, const auto&... args) { cuda::op(s, args...); }
#else
#define TANDEM_ON_CUDA(op) \
    [](Stream&, const auto&...) { throw DeviceUnavailable(#op ": this build has no CUDA"); }
#endif
#define TANDEM_ROUTE(op, ...)                                                                         \
    route(                                                                                            \
        #op, stream, [](Stream& s, const auto&... args) { cpu::op(s, args...); }, TANDEM_ON_CUDA(op), \
        __VA_ARGS__)

}  // namespace

void adamw(Stream& stream, Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
           const AdamWParams& params) {
    checks::adamw(param, grad, exp_avg, exp_avg_sq, params);
    TANDEM_ROUTE(adamw, param, grad, exp_avg, exp_avg_sq, params);
}

double sum_of_squares(Stream& stream, const Tensor& values) {
    checks::sum_of_squares(values);
    check_device("sum_of_squares", stream.device(), values);
#if TANDEM_WITH_CUDA
    if (on_gpu(stream)) return cuda::sum_of_squares(stream, values);
#endif
    stream.synchronize();
    return sum_of_squares(host_alias(values));
}

double sum_of_squares(const Tensor& values) {
    checks::sum_of_squares(values);
    Stream stream = Stream::make_inline();
    return cpu::sum_of_squares(stream, values);
}

void attention_forward(Stream& stream, const Tensor& q, const Tensor& k, const Tensor& v,
                       const std::vector<AttentionSegment>& segments, float scale, Tensor out, Tensor lse) {
    if (elsewhere(stream)) checks::attention_forward(q, k, v, segments, out, lse);
    TANDEM_ROUTE(attention_forward, q, k, v, segments, scale, out, lse);
}

void attention_delta(Stream& stream, const Tensor& dout, const Tensor& out, Tensor delta) {
    if (elsewhere(stream)) checks::attention_delta(dout, out, delta);
    TANDEM_ROUTE(attention_delta, dout, out, delta);
}

void attention_backward(Stream& stream, const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& lse, const Tensor& delta, const std::vector<AttentionSegment>& segments,
                        float scale, Tensor dq, Tensor dk, Tensor dv) {
    if (elsewhere(stream)) checks::attention_backward(dout, q, k, v, lse, delta, segments, dq, dk, dv);
    TANDEM_ROUTE(attention_backward, dout, q, k, v, lse, delta, segments, scale, dq, dk, dv);
}

void attention_merge(Stream& stream, const Tensor& block_out, const Tensor& block_lse, std::int64_t row_begin,
                     Tensor out, Tensor lse) {
    if (elsewhere(stream)) checks::attention_merge(block_out, block_lse, row_begin, out, lse);
    TANDEM_ROUTE(attention_merge, block_out, block_lse, row_begin, out, lse);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const std::vector<std::vector<std::int32_t>>& block_tables,
                            const std::vector<std::int32_t>& lengths, float scale, Tensor out) {
    if (elsewhere(stream)) checks::paged_attention_decode(q, k_cache, v_cache, block_tables, lengths, out);
    TANDEM_ROUTE(paged_attention_decode, q, k_cache, v_cache, block_tables, lengths, scale, out);
}

void paged_attention_decode(Stream& stream, const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                            const Tensor& pages, const Tensor& lengths, float scale, Tensor out) {
    checks::paged_attention_decode(q, k_cache, v_cache, pages, lengths, out);
    TANDEM_ROUTE(paged_attention_decode, q, k_cache, v_cache, pages, lengths, scale, out);
}

void write_pages(Stream& stream, const Tensor& k, const Tensor& v, const Tensor& pages, const Tensor& lengths,
                 Tensor k_cache, Tensor v_cache) {
    checks::write_pages(k, v, pages, lengths, k_cache, v_cache);
    TANDEM_ROUTE(write_pages, k, v, pages, lengths, k_cache, v_cache);
}

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    for (const CopyItem& item : items) checks::copy_item(item, true);
    TANDEM_ROUTE(batched_copy, items);
}

Checksum copy_checksum(Stream& stream, const CopyItem& item) {
    checks::copy_item(item, false);
#if TANDEM_WITH_CUDA
    if (on_gpu(stream)) return cuda::copy_checksum(stream, item);
#endif
    return cpu::copy_checksum(stream, held(std::span<const CopyItem>(&item, 1))[0]);
}

Checksum checksum(Stream& stream, ConstSpan bytes) {
    return copy_checksum(stream, {.from = bytes, .to = {nullptr, bytes.bytes}});
}

void token_logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                    float temperature, std::span<float> logprobs, std::span<float> lse,
                    std::span<float> entropies) {
    checks::token_logprobs(logits, targets, temperature, logprobs, lse, entropies);
    TANDEM_ROUTE(token_logprobs, logits, targets, temperature, logprobs, lse, entropies);
}

void token_logprobs_backward(Stream& stream, Tensor logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<const float> lse, std::span<const float> dlogprobs,
                             std::span<const float> entropies, std::span<const float> dentropies) {
    checks::token_logprobs_backward(logits, targets, temperature, lse, dlogprobs, entropies, dentropies);
    TANDEM_ROUTE(token_logprobs_backward, logits, targets, temperature, lse, dlogprobs, entropies,
                 dentropies);
}

void cast(Stream& stream, const Tensor& from, Tensor to) {
    checks::cast(from, to);
    TANDEM_ROUTE(cast, from, to);
}

void add(Stream& stream, Tensor a, const Tensor& b) {
    checks::add(a, b);
    TANDEM_ROUTE(add, a, b);
}

void scale(Stream& stream, Tensor a, float factor) {
    checks::scale(a);
    TANDEM_ROUTE(scale, a, factor);
}

void fill_zero(Stream& stream, Tensor a) {
    checks::fill_zero(a);
    TANDEM_ROUTE(fill_zero, a);
}

DeltaResult delta_encode(Stream& stream, const DeltaSource& source, Span base, Span to) {
    checks::delta_encode(source, base, to);
#if TANDEM_WITH_CUDA
    if (on_gpu(stream)) return cuda::delta_encode(stream, source, base, to);
#endif
    DeltaSource there = source;
    there.data = host_alias(source.data);
    return cpu::delta_encode(stream, there, host_alias(base), host_alias(to));
}

void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, std::size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, std::size_t stride) {
    checks::delta_apply(width, rows, row_elements, stride);
#if TANDEM_WITH_CUDA
    if (on_gpu(stream))
        return cuda::delta_apply(stream, codec, encoded, width, rows, row_elements, to, stride);
#endif
    cpu::delta_apply(stream, codec, host_alias(encoded), width, rows, row_elements, host_alias(to), stride);
}

void embedding(Stream& stream, const Tensor& table, const Tensor& ids, Tensor y) {
    checks::embedding(table, ids, y);
    TANDEM_ROUTE(embedding, table, ids, y);
}

void embedding(Stream& stream, const Tensor& table, std::span<const std::int32_t> ids, Tensor y) {
    checks::embedding(table, ids, y);
    TANDEM_ROUTE(embedding, table, ids, y);
}

void embedding_backward(Stream& stream, const Tensor& dy, std::span<const std::int32_t> ids, Tensor dtable) {
    checks::embedding_backward(dy, ids, dtable);
    TANDEM_ROUTE(embedding_backward, dy, ids, dtable);
}

void matmul(Stream& stream, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
            Tensor c, bool accumulate) {
    if (elsewhere(stream))
        checks::product("matmul", a, transpose_a == Transpose::yes, b, transpose_b == Transpose::yes, {}, c);
    TANDEM_ROUTE(matmul, a, transpose_a, b, transpose_b, c, accumulate);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, Tensor y) {
    linear(stream, x, weight, {}, y);
}

void linear(Stream& stream, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor y) {
    if (elsewhere(stream)) checks::product("linear", x, false, weight, true, bias, y);
    TANDEM_ROUTE(linear, x, weight, bias, y);
}

void linear_backward_input(Stream& stream, const Tensor& dy, const Tensor& weight, Tensor dx,
                           bool accumulate) {
    if (elsewhere(stream)) checks::product("linear_backward_input", dy, false, weight, false, {}, dx);
    TANDEM_ROUTE(linear_backward_input, dy, weight, dx, accumulate);
}

void linear_backward_weight(Stream& stream, const Tensor& dy, const Tensor& x, Tensor dweight) {
    if (elsewhere(stream)) checks::product("linear_backward_weight", dy, true, x, false, {}, dweight);
    if (elsewhere(stream))
        require(dweight.dtype() == DType::float32, "linear_backward_weight: dweight is {}, expected float32",
                dtype_name(dweight.dtype()));
    TANDEM_ROUTE(linear_backward_weight, dy, x, dweight);
}

void linear_backward_bias(Stream& stream, const Tensor& dy, Tensor dbias) {
    checks::linear_backward_bias(dy, dbias);
    TANDEM_ROUTE(linear_backward_bias, dy, dbias);
}

namespace {

WeightBox aliased(WeightBox box) {
    box.data = host_alias(box.data);
    return box;
}

}  // namespace

void accumulate_amax(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<float> amax) {
    checks::weight_box("accumulate_amax", box, grid, amax.size());
#if TANDEM_WITH_CUDA
    if (on_gpu(stream)) return cuda::accumulate_amax(stream, box, grid, amax);
#endif
    cpu::accumulate_amax(stream, aliased(box), grid, amax);
}

Checksum quantize(Stream& stream, const WeightBox& box, const ScaleGrid& grid, std::span<const float> scales,
                  Span to) {
    checks::weight_box("quantize", box, grid, scales.size());
    require(to.bytes == static_cast<std::size_t>(box.rows * box.columns),
            "quantize: {} bytes for {}×{} elements", to.bytes, box.rows, box.columns);
#if TANDEM_WITH_CUDA
    if (on_gpu(stream)) return cuda::quantize(stream, box, grid, scales, to);
#endif
    return cpu::quantize(stream, aliased(box), grid, scales, host_alias(to));
}

void rms_norm(Stream& stream, const Tensor& x, const Tensor& weight, float eps, Tensor y, Tensor rstd) {
    checks::rms_norm(x, weight, y, rstd);
    TANDEM_ROUTE(rms_norm, x, weight, eps, y, rstd);
}

void rms_norm_backward(Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& weight,
                       const Tensor& rstd, Tensor dx, Tensor dweight, bool accumulate_dx) {
    checks::rms_norm_backward(dy, x, weight, rstd, dx, dweight);
    TANDEM_ROUTE(rms_norm_backward, dy, x, weight, rstd, dx, dweight, accumulate_dx);
}

void rope(Stream& stream, Tensor x, std::span<const std::int32_t> positions, const RopeTable& table) {
    checks::rope("rope", x, positions, table);
    TANDEM_ROUTE(rope, x, positions, table);
}

void rope(Stream& stream, Tensor x, const Tensor& positions, std::int64_t limit, const RopeTable& table) {
    checks::rope(x, positions, limit, table);
    TANDEM_ROUTE(rope, x, positions, limit, table);
}

void rope_backward(Stream& stream, Tensor dx, std::span<const std::int32_t> positions,
                   const RopeTable& table) {
    checks::rope("rope_backward", dx, positions, table);
    TANDEM_ROUTE(rope_backward, dx, positions, table);
}

void sample_tokens(Stream& stream, const Tensor& logits, std::span<const Sampling> samples,
                   std::span<std::int32_t> tokens, std::span<float> logprobs) {
    checks::sample_tokens(logits, samples, tokens, logprobs);
    TANDEM_ROUTE(sample_tokens, logits, samples, tokens, logprobs);
}

void swiglu(Stream& stream, const Tensor& gate, const Tensor& up, Tensor y) {
    checks::swiglu(gate, up, y);
    TANDEM_ROUTE(swiglu, gate, up, y);
}

void swiglu_backward(Stream& stream, const Tensor& dy, const Tensor& gate, const Tensor& up, Tensor dgate,
                     Tensor dup) {
    checks::swiglu_backward(dy, gate, up, dgate, dup);
    TANDEM_ROUTE(swiglu_backward, dy, gate, up, dgate, dup);
}

}  // namespace tandem::ops
