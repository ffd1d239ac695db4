// The kernels of backward_pairs.h pair by pair.
//
// Every element of a product is one chain in the order of its inner index, whatever block it falls into, so a
// row's gradient does not depend on its neighbours.
#include "common/ops/cpu/attention/backward_lanes.inl"

struct PairRange {
    std::int64_t first, last;
};

// c[R, C vectors] += a · b over pairs [first, last); pair k of row i of a is a[i * a_row + k * a_pair].
struct PairsProduct {
    const std::uint32_t* a;
    std::int64_t a_row, a_pair;
    const std::uint32_t* b;
    float* c;
    std::int64_t width;  // of b and c
};

template <unsigned R, unsigned C>
TANDEM_LANES void pairs_block(const PairsProduct& t, std::int64_t row, std::int64_t column,
                              std::int64_t first, std::int64_t last) {
    Floats sum[R][C];
    float* const c = t.c + row * t.width + column;
    const std::uint32_t* const a = t.a + row * t.a_row;
    const std::uint32_t* const b = t.b + column;
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) sum[i][j] = load_floats(c + i * t.width + j * kFloats);
    }
    for (std::int64_t k = first; k < last; ++k) {
        Words right[C];
        for (unsigned j = 0; j < C; ++j) right[j] = load_pairs(b + k * t.width + j * kFloats);
        for (unsigned i = 0; i < R; ++i) {
            const Words left = all_lanes_pair(a + i * t.a_row + k * t.a_pair);
            for (unsigned j = 0; j < C; ++j) sum[i][j] = dot_pairs(left, right[j], sum[i][j]);
        }
    }
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) store_floats(c + i * t.width + j * kFloats, sum[i][j]);
    }
}

// `pairs(row, rows)` tells the pairs [first, last) that a block of rows needs: what is left out is 0.
template <unsigned R, unsigned C, typename Pairs>
TANDEM_LANES void pairs_panel(const PairsProduct& t, std::int64_t row, std::int64_t rows, std::int64_t column,
                              const Pairs& pairs) {
    for (; row + R <= rows; row += R) {
        const PairRange range = pairs(row, R);
        pairs_block<R, C>(t, row, column, range.first, range.last);
    }
    if constexpr (R > 1) pairs_panel<(R > 4 ? 4 : R / 2), C>(t, row, rows, column, pairs);
}

template <typename Pairs>
TANDEM_LANES void pairs_product(const PairsProduct& t, std::int64_t rows, const Pairs& pairs) {
    std::int64_t d = 0;
    for (; d + 4 * kFloats <= t.width; d += 4 * kFloats) pairs_panel<6, 4>(t, 0, rows, d, pairs);
    for (; d + 2 * kFloats <= t.width; d += 2 * kFloats) pairs_panel<8, 2>(t, 0, rows, d, pairs);
    for (; d < t.width; d += kFloats) pairs_panel<12, 1>(t, 0, rows, d, pairs);
}

// p and ds of keys [key, key + R) and a panel of queries from `query` on.
template <unsigned R>
TANDEM_LANES void score_block(const BackwardPairsTile& t, std::int64_t key, std::int64_t query) {
    const std::int64_t depth = (t.head_dim + 1) / 2;
    if (first_query(t, key) >= query + kPairLanes) return store_no_scores<R>(t, key, query);
    Floats s[R][kPanelVectors] = {}, dp[R][kPanelVectors] = {};
    const std::uint32_t* q_t = t.q_t + query * t.words;
    const std::uint32_t* dout_t = t.dout_t + query * t.words;
    const std::uint32_t* k = t.k + key * t.words;
    const std::uint32_t* v = t.v + key * t.words;
    for (std::int64_t w = 0; w < depth; ++w) {
        Words q[kPanelVectors], dout[kPanelVectors];
        for (unsigned j = 0; j < kPanelVectors; ++j) {
            q[j] = load_pairs(q_t + w * kPairLanes + j * kFloats);
            dout[j] = load_pairs(dout_t + w * kPairLanes + j * kFloats);
        }
        for (unsigned i = 0; i < R; ++i) {
            const Words k_pair = all_lanes_pair(k + i * t.words + w);
            const Words v_pair = all_lanes_pair(v + i * t.words + w);
            for (unsigned j = 0; j < kPanelVectors; ++j) {
                s[i][j] = dot_pairs(k_pair, q[j], s[i][j]);
                dp[i][j] = dot_pairs(v_pair, dout[j], dp[i][j]);
            }
        }
    }
    if (first_query(t, key + R - 1) > query) {
        store_scores<R, true>(t, key, query, s, dp);
    } else {
        store_scores<R, false>(t, key, query, s, dp);
    }
}

void backward_pairs_tile(const BackwardPairsTile& t) {
    const std::int64_t seen = clamped(t.visible + (t.rows - 1) * t.visible_step, kKeyTile);
    for (std::int64_t query = 0; query < t.rows; query += kPairLanes) {
        std::int64_t key = 0;
        for (; key + 3 <= seen; key += 4) score_block<4>(t, key, query);
        if (key < seen) score_block<2>(t, key, query);
    }
    const std::int64_t row_pairs = (t.rows + 1) / 2;
    const auto queries_of = [&](std::int64_t key, unsigned /*keys*/) {
        return PairRange{first_query(t, key) / 2, row_pairs};
    };
    const auto keys_of = [&](std::int64_t query, unsigned queries) {
        return PairRange{0, (clamped(t.visible + (query + queries - 1) * t.visible_step, kKeyTile) + 1) / 2};
    };
    pairs_product({t.p, kPairQueries / 2, 1, t.dout_pairs, t.dv, t.width}, seen, queries_of);
    pairs_product({t.ds, kPairQueries / 2, 1, t.q_pairs, t.dk, t.width}, seen, queries_of);
    pairs_product({t.ds_pairs, 1, kPairQueries, t.k_pairs, t.dq, t.width}, t.rows, keys_of);
}
