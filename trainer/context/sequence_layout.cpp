#include "trainer/context/sequence_layout.h"

#include <algorithm>
#include <numeric>

#include "common/align.h"
#include "common/error.h"

namespace tandem::trainer {
namespace {

SequenceLayout start_layout(std::span<const std::int64_t> lengths, int cp, int rank) {
    require(cp > 0 && rank >= 0 && rank < cp, "rank {} of a cp axis of {}", rank, cp);
    SequenceLayout layout;
    layout.lengths.assign(lengths.begin(), lengths.end());
    if (layout.lengths.empty()) layout.lengths.push_back(0);
    layout.cp = cp;
    layout.rank = rank;
    return layout;
}

void close_layout(SequenceLayout& layout, const std::vector<std::int64_t>& padded) {
    layout.cu_seqlens.assign(1, 0);
    for (const std::int64_t length : padded) {
        layout.cu_seqlens.push_back(layout.cu_seqlens.back() + static_cast<std::int32_t>(length));
    }
    layout.pad_len = std::accumulate(padded.begin(), padded.end(), std::int64_t{0}) -
                     std::accumulate(layout.lengths.begin(), layout.lengths.end(), std::int64_t{0});
}

}  // namespace

SequenceLayout packed_layout(std::span<const std::int64_t> lengths, int cp, int rank) {
    SequenceLayout layout = start_layout(lengths, cp, rank);
    std::vector<std::int64_t> padded = layout.lengths;
    const std::int64_t total = std::accumulate(padded.begin(), padded.end(), std::int64_t{0});
    const std::int64_t rounded = std::max<std::int64_t>(round_up(total, cp), cp);
    padded.back() += rounded - total;
    close_layout(layout, padded);

    const std::int64_t local = rounded / cp;
    const std::int64_t begin = rank * local;
    std::size_t sequence = 0;
    for (std::int64_t at = begin; at < begin + local; ++at) {
        while (at >= layout.cu_seqlens[sequence + 1]) ++sequence;
        layout.rows.push_back({static_cast<std::int32_t>(sequence),
                               static_cast<std::int32_t>(at - layout.cu_seqlens[sequence])});
    }
    return layout;
}

SequenceLayout zigzag_layout(std::span<const std::int64_t> lengths, int cp, int rank) {
    SequenceLayout layout = start_layout(lengths, cp, rank);
    layout.zigzag = true;
    std::vector<std::int64_t> padded;
    for (std::size_t sequence = 0; sequence < layout.lengths.size(); ++sequence) {
        const std::int64_t length =
            std::max<std::int64_t>(round_up(layout.lengths[sequence], 2 * cp), 2 * cp);
        padded.push_back(length);
        const std::int64_t chunk = length / (2 * cp);
        for (const std::int64_t start : {rank * chunk, (2 * cp - 1 - rank) * chunk}) {
            for (std::int64_t at = start; at < start + chunk; ++at) {
                layout.rows.push_back({static_cast<std::int32_t>(sequence), static_cast<std::int32_t>(at)});
            }
        }
    }
    close_layout(layout, padded);
    return layout;
}

LocalSeqlens prepare_cu_seqlens(std::span<const std::int32_t> cu_seqlens, int rank, int cp) {
    const std::int64_t total = cu_seqlens.back();
    require(total % cp == 0, "{} packed tokens do not divide over {} ranks", total, cp);
    const std::int64_t local = total / cp;
    const std::int64_t begin = rank * local;
    const std::int64_t end = begin + local;
    // First entries >= begin and >= end; step back to the start of the sequence that `begin` is inside of.
    auto left = std::lower_bound(cu_seqlens.begin(), cu_seqlens.end(), begin);
    const auto right = std::lower_bound(cu_seqlens.begin(), cu_seqlens.end(), end);
    if (*left != begin) --left;

    LocalSeqlens result;
    result.k_begin = *left;
    result.k_end = end;
    for (auto at = left; at <= right; ++at) {
        result.cu_q.push_back(*at - begin);
        result.cu_k.push_back(*at - *left);
    }
    result.cu_q.front() = 0;
    result.cu_q.back() = local;
    result.cu_k.back() = end - *left;
    return result;
}

}  // namespace tandem::trainer
