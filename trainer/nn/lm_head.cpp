#include "trainer/nn/lm_head.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/ops/batched_copy.h"
#include "common/ops/elementwise.h"
#include "common/ops/embedding.h"
#include "common/ops/matmul.h"

namespace tandem::trainer {
namespace {

Tensor empty_logits(const Compute& compute, std::int64_t rows, std::int64_t vocab, DType dtype) {
    return Tensor::empty(compute.stream, {rows, vocab}, dtype, "logits");
}

constexpr std::size_t kScratchPerRow = 7;  // floats of a Chunk

// target[rows[i]] = from[i], other rows zero. Rows ascend.
void scatter_rows(Stream& stream, const Tensor& from, std::span<const std::int32_t> rows, Tensor target) {
    ops::fill_zero(stream, target);
    const std::size_t row_bytes = static_cast<std::size_t>(from.dim(1)) * dtype_size(from.dtype());
    std::vector<ops::CopyItem> runs;  // of rows that follow each other
    for (std::size_t i = 0, count = 0; i < rows.size(); i += count) {
        count = 1;
        while (i + count < rows.size() && rows[i + count] == rows[i + count - 1] + 1) ++count;
        std::byte* to = target.raw() + static_cast<std::size_t>(rows[i]) * row_bytes;
        if (stream.is_inline()) {
            copy(stream, {from.raw() + i * row_bytes, count * row_bytes}, {to, count * row_bytes});
            continue;
        }
        ops::CopyItem& run = runs.emplace_back();
        run.from = ConstSpan(from.raw() + i * row_bytes, count * row_bytes);
        run.to = {to, count * row_bytes};
        run.non_temporal = false;
    }
    if (!runs.empty()) ops::batched_copy(stream, runs);
}

}  // namespace

// The numbers of one chunk, a row of them for each target.
struct LmHead::Chunk {
    std::span<const std::int32_t> tokens;
    TargetScores scores;
    TargetGradients gradients;
    std::span<float> lse;
};

LmHead::Chunk LmHead::make_chunk(std::span<float> scratch, std::span<const std::int32_t> tokens,
                                 const TargetLoss& loss) {
    const std::size_t n = tokens.size();
    const auto part = [&](std::size_t i, bool wanted = true) {
        return wanted ? scratch.subspan(i * n, n) : std::span<float>();
    };
    return {tokens,
            {part(0), part(1), part(2, loss.trains_values())},
            {part(3), part(4, loss.differentiates_entropy()), part(5, loss.trains_values())},
            part(6)};
}

LmHead::LmHead(RmsNorm norm, Parameter& weight, CutVocabulary vocabulary, Parameter* value_weight,
               std::int64_t chunk_rows)
    : norm_(std::move(norm)),
      weight_(&weight),
      vocabulary_(vocabulary),
      value_weight_(value_weight),
      chunk_rows_(chunk_rows) {
    require(chunk_rows > 0, "logits in chunks of {} rows", chunk_rows);
}

Tensor LmHead::select(const Compute& compute, const Tensor& hidden, const Targets& targets,
                      RmsNorm::Saved& saved) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    Tensor rows = empty_activation(compute, {count, hidden.dim(1)}, hidden.dtype());
    ops::embedding(compute.stream, hidden, targets.rows, rows);
    return norm_.forward(compute, rows, saved);
}

void LmHead::score_chunk(const Compute& compute, const Tensor& selected, std::span<const std::int32_t> tokens,
                         float temperature, const Tensor& logits, std::span<float> lse,
                         const TargetScores& scores) const {
    ops::linear(compute.stream, selected, weight_->value, logits);
    vocabulary_.logprobs(compute.stream, logits, tokens, temperature, scores.logprobs, lse, scores.entropies);
    if (scores.values.empty()) return;
    require(value_weight_ != nullptr, "values of a model without a value head");
    const Tensor values = empty_activation(compute, {selected.dim(0), 1}, DType::float32);
    ops::linear(compute.stream, selected, value_weight_->value, values);
    copy(compute.stream, values.span(),
         {reinterpret_cast<std::byte*>(scores.values.data()), scores.values.size_bytes()});
    compute.stream.synchronize();
}

void LmHead::score(const Compute& compute, const Tensor& hidden, const Targets& targets, float temperature,
                   const TargetScores& scores) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    if (count == 0) return;
    RmsNorm::Saved saved;
    const Tensor selected = select(compute, hidden, targets, saved);
    std::vector<float> lse(targets.rows.size());
    const Tensor logits =
        empty_logits(compute, std::min(chunk_rows_, count), weight_->value_shape[0], DType::float32);
    for (std::int64_t first = 0; first < count; first += chunk_rows_) {
        const std::int64_t rows = std::min(chunk_rows_, count - first);
        const auto part = [&](auto values) {
            return values.empty()
                       ? values
                       : values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
        };
        score_chunk(compute, selected.rows(first, rows), part(targets.tokens), temperature,
                    logits.rows(0, rows), part(std::span(lse)),
                    {part(scores.logprobs), part(scores.entropies), part(scores.values)});
    }
    compute.stream.synchronize();
}

void LmHead::look_ahead(const Compute& compute, const Tensor& selected, const Targets& targets,
                        TargetLoss& loss) const {
    std::vector<float> logprobs(targets.rows.size());
    std::vector<float> lse(targets.rows.size());
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    const Tensor logits =
        empty_logits(compute, std::min(chunk_rows_, count), weight_->value_shape[0], DType::float32);
    for (std::int64_t first = 0; first < count; first += chunk_rows_) {
        const std::int64_t rows = std::min(chunk_rows_, count - first);
        const auto at = static_cast<std::size_t>(first);
        const auto n = static_cast<std::size_t>(rows);
        score_chunk(compute, selected.rows(first, rows), targets.tokens.subspan(at, n), loss.temperature(),
                    logits.rows(0, rows), std::span(lse).subspan(at, n),
                    {std::span(logprobs).subspan(at, n), {}, {}});
    }
    compute.stream.synchronize();
    loss.look_ahead(logprobs);
}

Tensor LmHead::loss(const Compute& compute, const Tensor& hidden, const Targets& targets,
                    TargetLoss& loss) const {
    const auto count = static_cast<std::int64_t>(targets.rows.size());
    Tensor dhidden = empty_terms(compute, hidden.shape(), hidden.dtype());
    if (count == 0) {
        if (loss.looks_ahead()) loss.look_ahead({});
        ops::fill_zero(compute.stream, dhidden);
        return dhidden;
    }
    RmsNorm::Saved saved;
    const Tensor selected = select(compute, hidden, targets, saved);
    const Tensor dselected = empty_activation(compute, selected.shape(), selected.dtype());
    const std::int64_t most = std::min(chunk_rows_, count);
    if (loss.looks_ahead() && most < count) look_ahead(compute, selected, targets, loss);
    const Tensor logits = empty_logits(compute, most, weight_->value_shape[0], DType::float32);
    std::vector<float> scratch(static_cast<std::size_t>(most) * kScratchPerRow);
    for (std::int64_t first = 0; first < count; first += chunk_rows_) {
        const std::int64_t rows = std::min(chunk_rows_, count - first);
        const auto tokens =
            targets.tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
        const Chunk chunk = make_chunk(scratch, tokens, loss);
        const Tensor x = selected.rows(first, rows);
        score_chunk(compute, x, tokens, loss.temperature(), logits.rows(0, rows), chunk.lse, chunk.scores);
        compute.stream.synchronize();
        if (loss.looks_ahead() && rows == count) loss.look_ahead(chunk.scores.logprobs);
        loss.gradients(first, chunk.scores, chunk.gradients);
        backward_chunk(compute, chunk, loss, x, logits.rows(0, rows), dselected.rows(first, rows));
    }
    const Tensor drows = empty_activation(compute, selected.shape(), selected.dtype());
    norm_.backward(compute, dselected, saved, drows, /*accumulate_dx=*/false);
    scatter_rows(compute.stream, drows, targets.rows, dhidden);
    return dhidden;
}

void LmHead::backward_chunk(const Compute& compute, const Chunk& chunk, const TargetLoss& loss,
                            const Tensor& selected, const Tensor& logits, const Tensor& dselected) const {
    vocabulary_.logprobs_backward(compute.stream, logits, chunk.tokens, loss.temperature(), chunk.lse,
                                  chunk.gradients.dlogprobs, chunk.scores.entropies,
                                  chunk.gradients.dentropies);
    backward_linear(compute, logits, selected, *weight_, dselected, /*accumulate=*/false);
    if (!loss.trains_values()) return;
    const Tensor dvalues = empty_activation(compute, {selected.dim(0), 1}, DType::float32);
    copy(compute.stream,
         {reinterpret_cast<const std::byte*>(chunk.gradients.dvalues.data()), dvalues.bytes()},
         dvalues.span());
    compute.stream.synchronize();  // the chunk's numbers are written again soon
    // Every rank of the tp axis has the values whole; one of them brings what they add to the sum.
    backward_linear(compute, dvalues, selected, *value_weight_, compute.tensor.first() ? dselected : Tensor(),
                    /*accumulate=*/true);
}

void LmHead::backward_linear(const Compute& compute, const Tensor& doutput, const Tensor& selected,
                             const Parameter& weight, Tensor dselected, bool accumulate) const {
    Tensor dy = doutput;
    if (compute.dtype != DType::float32) {
        dy = empty_logits(compute, doutput.dim(0), doutput.dim(1), compute.dtype);
        ops::cast(compute.stream, doutput, dy);
    }
    ops::linear_backward_weight(compute.stream, dy, selected, weight.grad.memory(), weight.grad.adds());
    if (dselected.defined())
        ops::linear_backward_input(compute.stream, dy, weight.value, dselected, accumulate);
}

}  // namespace tandem::trainer
