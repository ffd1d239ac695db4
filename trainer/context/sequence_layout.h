// Padding of a pack's tokens, and their cut over the ranks of the cp axis. Pure arithmetic: no tensors, no
// ranks that talk. Padding is explicit: a row whose position is not below its sequence's length is padding;
// nothing is inferred from token values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem::trainer {

struct SequenceLayout {
    // Row of the pack that a rank holds: which sequence, and where in it (RoPE's position).
    struct Row {
        std::int32_t sequence = 0;
        std::int32_t position = 0;
        friend bool operator==(const Row&, const Row&) = default;
    };

    std::vector<std::int64_t> lengths;     // of the sequences, without padding
    std::vector<std::int32_t> cu_seqlens;  // with padding: [0, p0, p0 + p1, …]
    std::int64_t pad_len = 0;              // rows of padding in the whole pack
    bool zigzag = false;
    int cp = 1;
    int rank = 0;
    std::vector<Row> rows;  // this rank's rows, in local order; equally many on every rank

    bool is_padding(const Row& row) const {
        return row.position >= lengths[static_cast<std::size_t>(row.sequence)];
    }
};

// The pack's tokens one after the other, padded at the end to a multiple of cp (the padding belongs to the
// last sequence), cut into cp equal pieces: sequences may straddle a border. A pack of no sequences becomes
// one of padding alone.
SequenceLayout packed_layout(std::span<const std::int64_t> lengths, int cp, int rank);

// Each sequence is padded at its end to a multiple of 2 cp and cut into 2 cp chunks; a rank owns chunks
// `rank` and 2 cp - 1 - rank of every sequence, so that causal work is the same on all ranks.
SequenceLayout zigzag_layout(std::span<const std::int64_t> lengths, int cp, int rank);

// The keys that rank `rank` of a contiguous cut attends to (ring-flash-attention's llama3 rule, causal): its
// pieces of sequences as queries, cu_q, and for each the keys from the sequence's start on, cu_k, inside rows
// [k_begin, k_end) of the whole pack.
struct LocalSeqlens {
    std::vector<std::int64_t> cu_q;
    std::vector<std::int64_t> cu_k;
    std::int64_t k_begin = 0;
    std::int64_t k_end = 0;
};
LocalSeqlens prepare_cu_seqlens(std::span<const std::int32_t> cu_seqlens, int rank, int cp);

}  // namespace tandem::trainer
