#include "trainer/nn/lm_head.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/ops/cross_entropy.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"

namespace tandem::trainer {
namespace {

constexpr float kTemperature = 1.0f;

// target[rows[i]] = from[i], other rows zero.
void scatter_rows(Stream& stream, const Tensor& from, std::span<const std::int32_t> rows, Tensor target) {
    ops::fill_zero(stream, target);
    stream.enqueue([from, rows, target] {
        const std::size_t row_bytes = static_cast<std::size_t>(from.dim(1)) * dtype_size(from.dtype());
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::memcpy(target.raw() + static_cast<std::size_t>(rows[i]) * row_bytes,
                        from.raw() + i * row_bytes, row_bytes);
        }
    });
}

}  // namespace

LmHead::LmHead(RmsNorm norm, Parameter& weight, std::int64_t chunk_rows)
    : norm_(std::move(norm)), weight_(&weight), chunk_rows_(chunk_rows) {
    require(chunk_rows > 0, "logits in chunks of {} rows", chunk_rows);
}

Tensor LmHead::select(const Compute& compute, const Tensor& hidden, const Targets& targets,
                      RmsNorm::Saved& saved) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    Tensor rows = empty_activation({count, hidden.dim(1)}, hidden.dtype());
    ops::embedding(compute.stream, hidden, targets.rows, rows);
    return norm_.forward(compute, rows, saved);
}

void LmHead::logprobs(const Compute& compute, const Tensor& hidden, const Targets& targets,
                      std::span<float> logprobs) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    if (count == 0) return;
    RmsNorm::Saved saved;
    const Tensor selected = select(compute, hidden, targets, saved);
    std::vector<float> lse(targets.rows.size());
    Tensor logits = empty_activation({std::min(chunk_rows_, count), weight_->shape[0]}, DType::float32);
    for (std::int64_t first = 0; first < count; first += chunk_rows_) {
        const std::int64_t rows = std::min(chunk_rows_, count - first);
        const auto at = static_cast<std::size_t>(first);
        const auto n = static_cast<std::size_t>(rows);
        const Tensor chunk = logits.rows(0, rows);
        ops::linear(compute.stream, selected.rows(first, rows), weight_->value, chunk);
        ops::token_logprobs(compute.stream, chunk, targets.tokens.subspan(at, n), kTemperature,
                            logprobs.subspan(at, n), std::span(lse).subspan(at, n));
    }
}

Tensor LmHead::loss(const Compute& compute, const Tensor& hidden, const Targets& targets,
                    const TargetLoss& loss) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    Tensor dhidden = empty_activation(hidden.shape(), hidden.dtype());
    if (count == 0) {
        ops::fill_zero(compute.stream, dhidden);
        return dhidden;
    }
    RmsNorm::Saved saved;
    const Tensor selected = select(compute, hidden, targets, saved);
    const Tensor dselected = empty_activation(selected.shape(), selected.dtype());
    const std::int64_t most = std::min(chunk_rows_, count);
    const Tensor logits = empty_activation({most, weight_->shape[0]}, DType::float32);
    std::vector<float> values(static_cast<std::size_t>(most) * 3);
    for (std::int64_t first = 0; first < count; first += chunk_rows_) {
        const std::int64_t rows = std::min(chunk_rows_, count - first);
        const auto n = static_cast<std::size_t>(rows);
        const std::span<float> logprobs(values.data(), n);
        const std::span<float> lse(values.data() + most, n);
        const std::span<float> dlogprobs(values.data() + 2 * most, n);
        const auto tokens = targets.tokens.subspan(static_cast<std::size_t>(first), n);
        const Tensor chunk = logits.rows(0, rows);
        const Tensor x = selected.rows(first, rows);
        ops::linear(compute.stream, x, weight_->value, chunk);
        ops::token_logprobs(compute.stream, chunk, tokens, kTemperature, logprobs, lse);
        compute.stream.synchronize();
        loss(first, logprobs, dlogprobs);
        ops::token_logprobs_backward(compute.stream, chunk, tokens, kTemperature, lse, dlogprobs);
        backward_chunk(compute, chunk, x, dselected.rows(first, rows));
    }
    const Tensor drows = empty_activation(selected.shape(), selected.dtype());
    norm_.backward(compute, dselected, saved, drows, /*accumulate_dx=*/false);
    scatter_rows(compute.stream, drows, targets.rows, dhidden);
    return dhidden;
}

void LmHead::backward_chunk(const Compute& compute, const Tensor& dlogits, const Tensor& selected,
                            Tensor dselected) const {
    Tensor dy = dlogits;
    if (compute.dtype != DType::float32) {
        dy = empty_activation(dlogits.shape(), compute.dtype);
        ops::cast(compute.stream, dlogits, dy);
    }
    ops::linear_backward_weight(compute.stream, dy, selected, weight_->grad);
    ops::linear_backward_input(compute.stream, dy, weight_->value, dselected);
}

}  // namespace tandem::trainer
