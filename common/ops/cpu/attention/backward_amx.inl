// The kernels of backward_pairs.h by tiles of AMX (amx.h).
#include "common/ops/cpu/attention/backward_lanes.inl"

constexpr std::int64_t kStep = kTileRows;          // pairs of a product
constexpr std::int64_t kTilePairs = kKeyTile / 2;  // of keys

// [first, last) of pairs, to multiples of kStep.
TANDEM_LANES std::int64_t steps_down(std::int64_t pairs) {
    return pairs / kStep * kStep;
}
TANDEM_LANES std::int64_t steps_up(std::int64_t pairs) {
    return (pairs + kStep - 1) / kStep * kStep;
}

// p and ds of 16 keys and a panel of queries.
void score_block(const BackwardPairsTile& t, std::int64_t key, std::int64_t query) {
    if (first_query(t, key) >= query + kPairLanes) return store_no_scores<16>(t, key, query);
    const std::uint32_t* q_t = t.q_t + query * t.words;
    const std::uint32_t* dout_t = t.dout_t + query * t.words;
    alignas(64) float s[16][kPairLanes] = {}, dp[16][kPairLanes] = {};
    add_tiles({t.k + key * t.words, t.words, q_t, kPairLanes, s[0], kPairLanes}, kPanelVectors, 0, t.words);
    add_tiles({t.v + key * t.words, t.words, dout_t, kPairLanes, dp[0], kPairLanes}, kPanelVectors, 0,
              t.words);
    const bool masked = first_query(t, key + 15) > query;
    for (std::int64_t i = 0; i < 16; i += 2) {
        Floats s_lanes[2][kPanelVectors], dp_lanes[2][kPanelVectors];
        for (unsigned j = 0; j < 2 * kPanelVectors; ++j) {
            s_lanes[j / kPanelVectors][j % kPanelVectors] = load_floats(s[i] + j * kFloats);
            dp_lanes[j / kPanelVectors][j % kPanelVectors] = load_floats(dp[i] + j * kFloats);
        }
        if (masked) {
            store_scores<2, true>(t, key + i, query, s_lanes, dp_lanes);
        } else {
            store_scores<2, false>(t, key + i, query, s_lanes, dp_lanes);
        }
    }
}

// c [16, width] += a · b over pairs [first, last); rows of b and c are width apart.
void add_rows_of_tiles(const BackwardPairsTile& t, const std::uint32_t* a, std::int64_t a_row,
                       const std::uint32_t* b, float* c, std::int64_t first, std::int64_t last) {
    for (std::int64_t d = 0; d < t.width; d += 4 * kTileRows) {
        const std::int64_t columns = clamped((t.width - d) / kTileRows, 4);
        add_tiles({a, a_row, b + d, t.width, c + d, t.width}, columns, first, last);
    }
}

// to [16, kTilePairs]: the pairs of keys of 16 queries.
void turn_ds(const BackwardPairsTile& t, std::int64_t query, std::int64_t pairs, std::uint32_t* to) {
    for (std::int64_t pair = 0; pair < pairs; pair += kFloats) {
        Words block[kFloats];
        for (int i = 0; i < kFloats; ++i)
            block[i] = load_pairs(t.ds_pairs + (pair + i) * kPairQueries + query);
        transpose_words(block);
        for (int i = 0; i < kFloats; ++i) store_pairs(to + i * kTilePairs + pair, block[i]);
    }
}

void backward_amx_tile(const BackwardPairsTile& t) {
    const auto seen_by = [&](std::int64_t query) {
        return clamped(t.visible + query * t.visible_step, kKeyTile);
    };
    const std::int64_t seen = seen_by(t.rows - 1), key_pairs = steps_up((seen + 1) / 2);
    for (std::int64_t query = 0; query < t.rows; query += kPairLanes) {
        for (std::int64_t key = 0; key < 2 * key_pairs; key += 16) score_block(t, key, query);
    }
    const std::int64_t row_pairs = steps_up((t.rows + 1) / 2);
    for (std::int64_t key = 0; key < seen; key += 16) {
        const std::int64_t first = steps_down(first_query(t, key) / 2), at = key * kPairQueries / 2;
        add_rows_of_tiles(t, t.p + at, kPairQueries / 2, t.dout_pairs, t.dv + key * t.width, first,
                          row_pairs);
        add_rows_of_tiles(t, t.ds + at, kPairQueries / 2, t.q_pairs, t.dk + key * t.width, first, row_pairs);
    }
    for (std::int64_t query = 0; query < t.rows; query += 16) {
        alignas(64) std::uint32_t turned[16 * kTilePairs];
        const std::int64_t pairs = steps_up((seen_by(clamped(query + 15, t.rows - 1)) + 1) / 2);
        turn_ds(t, query, pairs, turned);
        add_rows_of_tiles(t, turned, kTilePairs, t.k_pairs, t.dq + query * t.width, 0, pairs);
    }
}
