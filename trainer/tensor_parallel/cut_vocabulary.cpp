#include "trainer/tensor_parallel/cut_vocabulary.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/dtensor/placement.h"
#include "common/ops/batched_copy.h"
#include "common/ops/cross_entropy.h"

namespace tandem::trainer {

CutVocabulary::CutVocabulary(comm::Communicator& group, std::int64_t rows, bool loss_parallel)
    : group_(group),
      rows_(rows),
      part_rows_(padded_shard_size(rows, group.size())),
      loss_parallel_(loss_parallel) {}

std::vector<std::int32_t> CutVocabulary::here(std::span<const std::int32_t> ids,
                                              std::int32_t elsewhere) const {
    const std::int64_t first = part_rows_ * group_.rank();
    std::vector<std::int32_t> result(ids.begin(), ids.end());
    for (std::int32_t& id : result) {
        if (id < 0) continue;
        const std::int64_t row = id - first;
        id = row >= 0 && row < part_rows_ ? static_cast<std::int32_t>(row) : elsewhere;
    }
    return result;
}

void CutVocabulary::logprobs(Stream& stream, const Tensor& logits, std::span<const std::int32_t> targets,
                             float temperature, std::span<float> logprobs, std::span<float> lse,
                             std::span<float> entropies) const {
    if (group_.size() == 1)
        return ops::token_logprobs(stream, logits, targets, temperature, logprobs, lse, entropies);
    if (!loss_parallel_) {
        ops::token_logprobs(stream, gather_columns(stream, logits), targets, temperature, logprobs, lse,
                            entropies);
        return stream.synchronize();
    }
    if (logits.dim(1) == 0) {
        std::fill(lse.begin(), lse.end(), -std::numeric_limits<float>::infinity());
    } else {
        ops::token_logprobs(stream, logits, here(targets, ops::kElsewhere), temperature, logprobs, lse,
                            entropies);
        stream.synchronize();
    }
    combine(targets, logprobs, lse, entropies);
}

// The chain rules of log-sum-exp and entropy over the parts j of a row:
//   lse = log Σ exp(lse_j),  logp = logp_owner + (lse_owner - lse),  H = Σ w_j (H_j - log w_j)  with w_j = exp(lse_j - lse)
void CutVocabulary::combine(std::span<const std::int32_t> targets, std::span<float> logprobs,
                            std::span<float> lse, std::span<float> entropies) const {
    const std::size_t rows = targets.size();
    const std::size_t kinds = entropies.empty() ? 2 : 3;
    const Tensor sent = Tensor::empty({static_cast<std::int64_t>(kinds * rows)}, DType::float32, "logits",
                                      group_.memory());  // that peers read in place
    const std::span<float> mine = sent.values<float>();
    std::vector<float> all(mine.size() * static_cast<std::size_t>(group_.size()));
    std::copy(lse.begin(), lse.end(), mine.begin());
    std::copy(logprobs.begin(), logprobs.end(), mine.begin() + static_cast<std::ptrdiff_t>(rows));
    std::copy(entropies.begin(), entropies.end(), mine.begin() + static_cast<std::ptrdiff_t>(2 * rows));
    const auto received = std::as_writable_bytes(std::span(all));
    group_.all_gather(sent.span(), Span{received.data(), received.size()});
    const auto part = [&](std::size_t rank, std::size_t kind, std::size_t row) {
        return static_cast<double>(all[rank * mine.size() + kind * rows + row]);
    };
    const auto ranks = static_cast<std::size_t>(group_.size());
    for (std::size_t row = 0; row < rows; ++row) {
        double most = part(0, 0, row), sum = 0, entropy = 0;
        for (std::size_t rank = 1; rank < ranks; ++rank) most = std::max(most, part(rank, 0, row));
        for (std::size_t rank = 0; rank < ranks; ++rank) sum += std::exp(part(rank, 0, row) - most);
        const double whole = most + std::log(sum);
        for (std::size_t rank = 0; rank < ranks && !entropies.empty(); ++rank) {
            const double log_weight = part(rank, 0, row) - whole, weight = std::exp(log_weight);
            if (weight > 0) entropy += weight * (part(rank, 2, row) - log_weight);
        }
        lse[row] = static_cast<float>(whole);
        if (!entropies.empty()) entropies[row] = static_cast<float>(entropy);
        if (targets[row] < 0) continue;  // none: zero from every rank
        const auto owner = static_cast<std::size_t>(targets[row] / part_rows_);
        logprobs[row] = static_cast<float>(part(owner, 1, row) + (part(owner, 0, row) - whole));
    }
}

Tensor CutVocabulary::gather_columns(Stream& stream, const Tensor& logits) const {
    const std::int64_t rows = logits.dim(0);
    const std::size_t ranks = static_cast<std::size_t>(group_.size());
    const Tensor parts = Tensor::empty({static_cast<std::int64_t>(ranks) * rows, part_rows_}, logits.dtype(),
                                       "logits", group_.memory(stream.device()));
    const Tensor whole = Tensor::empty(stream, {rows, rows_}, logits.dtype(), "logits");
    const std::size_t element = dtype_size(logits.dtype());
    const auto row_bytes = [&](const Tensor& of) { return static_cast<std::size_t>(of.dim(1)) * element; };
    const Tensor own = parts.rows(group_.rank() * rows, rows);
    std::vector<ops::CopyItem> items;
    const auto copy_row = [&](const std::byte* from, std::byte* to, std::size_t bytes) {
        if (bytes == 0) return;
        ops::CopyItem& item = items.emplace_back();
        item.from = ConstSpan(from, bytes);
        item.to = {to, bytes};
        item.non_temporal = false;
    };
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row)
        copy_row(logits.raw() + row * row_bytes(logits), own.raw() + row * row_bytes(own), row_bytes(logits));
    fill_zero(stream, own.span());
    if (!items.empty()) ops::batched_copy(stream, items);
    const comm::GatherItem item{own.span(), parts.span()};
    stream.wait(group_.all_gather(std::span(&item, 1), stream).event());
    items.clear();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const ShardRange range =
            shard_range(rows_, static_cast<std::int64_t>(ranks), static_cast<std::int64_t>(rank));
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
            copy_row(parts.raw() + (rank * static_cast<std::size_t>(rows) + row) * row_bytes(parts),
                     whole.raw() + row * row_bytes(whole) + static_cast<std::size_t>(range.offset) * element,
                     static_cast<std::size_t>(range.size) * element);
        }
    }
    ops::batched_copy(stream, items);
    return whole;
}

void CutVocabulary::logprobs_backward(Stream& stream, const Tensor& logits,
                                      std::span<const std::int32_t> targets, float temperature,
                                      std::span<const float> lse, std::span<const float> dlogprobs,
                                      std::span<const float> entropies,
                                      std::span<const float> dentropies) const {
    if (group_.size() == 1) {
        return ops::token_logprobs_backward(stream, logits, targets, temperature, lse, dlogprobs, entropies,
                                            dentropies);
    }
    if (logits.dim(1) == 0) return;
    ops::token_logprobs_backward(stream, logits, here(targets, ops::kElsewhere), temperature, lse, dlogprobs,
                                 entropies, dentropies);
}

}  // namespace tandem::trainer
