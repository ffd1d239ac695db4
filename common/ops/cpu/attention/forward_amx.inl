// The products of forward_lanes.inl by tiles of AMX (amx.h): 16 keys, or 16 columns of values, against 16 queries, over
// 32 numbers of head_dim or 32 keys at a time.
#include "common/ops/cpu/attention/forward_lanes.inl"

constexpr std::int64_t kStep = kTileRows;  // pairs of a product

// Pairs [pair, pair + kStep) of 16 keys, 0 past `pairs`: a key lies anywhere, and ends where another may begin. Not
// inline: it would take the registers of the loop around it.
__attribute__((noinline)) void gather_keys(const std::uint16_t* const* k, std::int64_t pair,
                                           std::int64_t pairs, std::uint32_t* to) {
    const LaneMask there = first_lanes(pairs - pair);
    for (std::int64_t i = 0; i < kBlock; ++i) store_pairs(to + i * kStep, load_pairs(k[i] + 2 * pair, there));
}

template <int... kColumn>
void score_columns(const QueryLanes& t, std::int64_t key, std::int64_t column, Floats* best,
                   LaneList<kColumn...> columns) {
    const std::int64_t pairs = t.head_dim / 2;
    const std::uint32_t* q = t.q + column * kBlock;
    (clear_tile<kColumn>(), ...);
    for (std::int64_t pair = 0; pair < pairs; pair += kStep, q += kStep * kLaneQueries) {
        alignas(64) std::uint32_t left[kBlock * kStep];
        gather_keys(t.k + key, pair, pairs, left);
        multiply_columns(left, kStep, q, kLaneQueries, columns);
    }
    float* const scores = t.scores + key * kLaneQueries + column * kBlock;
    (store_tile<kColumn>(scores + kColumn * kBlock, kLaneQueries), ...);
    for (std::int64_t j = 0; j < std::int64_t{sizeof...(kColumn)}; ++j) {
        const bool all_seen = seeing(t, key + kBlock - 1, column + j) == 0xffff;
        Floats most = best[column + j];
        for (std::int64_t i = 0; i < kBlock; ++i) {
            float* const at = scores + i * kLaneQueries + j * kBlock;
            Floats s = load_floats(at);
            if (!all_seen) {
                s = select_lanes(seeing(t, key + i, column + j), s, all_lanes(-__builtin_inff()));
                store_floats(at, s);
            }
            most = larger(s, most);
        }
        best[column + j] = most;
    }
}

void score_block(const QueryLanes& t, std::int64_t key, std::int64_t column, std::int64_t columns,
                 Floats* best) {
    switch (columns) {
        case 4:
            return score_columns(t, key, column, best, LaneList<0, 1, 2, 3>{});
        case 3:
            return score_columns(t, key, column, best, LaneList<0, 1, 2>{});
        case 2:
            return score_columns(t, key, column, best, LaneList<0, 1>{});
        default:
            return score_columns(t, key, column, best, LaneList<0>{});
    }
}

TANDEM_LANES std::int64_t pairs_of(std::int64_t keys) {
    return (keys + 2 * kStep - 1) / (2 * kStep) * kStep;
}

void add_values(const QueryLanes& t, std::int64_t columns, const std::int64_t* seen, const float* factor) {
    for (std::int64_t j = 0; j < columns; ++j) {
        std::uint32_t* const p = t.p + j * kBlock;  // probabilities are there for whole blocks of keys
        for (std::int64_t pair = (seen[j] + kBlock - 1) / kBlock * kBlock / 2; pair < pairs_of(seen[j]);
             ++pair)
            store_pairs(p + pair * kLaneQueries, Words{});
        if (factor == nullptr || seen[j] == 0) continue;
        const Floats by = load_floats(factor + j * kBlock);
        for (std::int64_t d = 0; d < t.head_dim; ++d) {
            float* const acc = t.acc + d * kLaneQueries + j * kBlock;
            store_floats(acc, load_floats(acc) * by);
        }
    }
    for (std::int64_t first = 0, end = 0; first < columns; first = end) {
        while (end < columns && pairs_of(seen[end]) == pairs_of(seen[first])) ++end;
        if (seen[first] == 0) continue;
        for (std::int64_t d = 0; d < t.head_dim; d += kBlock)
            add_tiles({t.v_t + d * kTilePairs, kTilePairs, t.p + first * kBlock, kLaneQueries,
                       t.acc + d * kLaneQueries + first * kBlock, kLaneQueries},
                      end - first, 0, pairs_of(seen[first]));
    }
}
