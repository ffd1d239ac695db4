// The kernels of backward_pairs.h, over the lanes of pairs.h.
//
// Every element of a product is one chain in the order of its inner index, whatever block it falls into, so a
// row's gradient does not depend on its neighbours.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

using Halves = std::uint16_t __attribute__((vector_size(64)));
constexpr unsigned kPanelVectors = kPairLanes / kFloats;
struct PairRange {
    std::int64_t first, last;
};

// 16 words of a row, of whose elements `count` are left; 0 past them.
TANDEM_LANES Words load_row(const std::uint16_t* from, std::int64_t count) {
    if (count >= 2 * kFloats) return load_pairs(from);
    Words row = load_pairs(from, first_lanes(count / 2));
    if (count > 0 && count % 2 != 0) row[count / 2] = from[count - 1];  // the next element is not this row's
    return row;
}

void pack_rows(const PairRows& r, std::int64_t words, std::uint32_t* to) {
    for (std::int64_t row = 0; row < r.rows; ++row) {
        for (std::int64_t w = 0; w < words; w += kFloats)
            store_pairs(to + row * words + w, load_row(r.from + row * r.stride + 2 * w, r.head_dim - 2 * w));
    }
}

// Columns of two rows, side by side: the first 16 columns, and the rest.
TANDEM_LANES Words first_pairs(const Words& a, const Words& b) {
    return reinterpret_cast<Words>(__builtin_shufflevector(
        reinterpret_cast<Halves>(a), reinterpret_cast<Halves>(b), 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6,
        38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
}
TANDEM_LANES Words last_pairs(const Words& a, const Words& b) {
    return reinterpret_cast<Words>(__builtin_shufflevector(
        reinterpret_cast<Halves>(a), reinterpret_cast<Halves>(b), 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21,
        53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63));
}

void pack_pairs(const PairRows& r, std::int64_t width, std::uint32_t* to) {
    for (std::int64_t row = 0; row < r.rows; row += 2, to += width) {
        const std::uint16_t* from = r.from + row * r.stride;
        for (std::int64_t d = 0; d < width; d += 2 * kFloats) {
            const Words first = load_row(from + d, r.head_dim - d);
            const Words second = row + 1 < r.rows ? load_row(from + r.stride + d, r.head_dim - d) : Words{};
            store_pairs(to + d, first_pairs(first, second));
            if (d + kFloats < width) store_pairs(to + d + kFloats, last_pairs(first, second));
        }
    }
}

void pack_turned(const PairRows& r, std::uint32_t* to) {
    const std::int64_t depth = (r.head_dim + 1) / 2;
    for (std::int64_t row = 0; row < r.rows; row += kPairLanes, to += depth * kPairLanes) {
        for (std::int64_t lane = 0; lane < kPairLanes; lane += kFloats) {
            for (std::int64_t w = 0; w < depth; w += kFloats) {
                Words block[kFloats];
                for (int i = 0; i < kFloats; ++i) {
                    const std::int64_t at = row + lane + i;
                    block[i] =
                        at < r.rows ? load_row(r.from + at * r.stride + 2 * w, r.head_dim - 2 * w) : Words{};
                }
                transpose_words(block);
                for (int i = 0; i < kFloats; ++i) {
                    if (w + i < depth) store_pairs(to + (w + i) * kPairLanes + lane, block[i]);
                }
            }
        }
    }
}

void add_rows(const float* from, std::int64_t width, std::int64_t rows, std::int64_t head_dim, float factor,
              float* to, std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row, from += width, to += stride) {
        std::int64_t d = 0;
        for (; d + kFloats <= head_dim; d += kFloats)
            store_floats(to + d, load_floats(to + d) + load_floats(from + d) * factor);
        for (; d < head_dim; ++d) to[d] += from[d] * factor;
    }
}

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

TANDEM_LANES std::int64_t clamped(std::int64_t value, std::int64_t most) {
    return value < 0 ? 0 : (value > most ? most : value);
}

// The first query that sees key `key` of the tile; kPairQueries: none.
TANDEM_LANES std::int64_t first_query(const BackwardPairsTile& t, std::int64_t key) {
    if (key < t.visible) return 0;
    return t.visible_step == 0 ? kPairQueries : clamped(key - t.visible + 1, kPairQueries);
}

// p and ds, from the scores and dp of keys [key, key + R) and a panel of queries from `query` on.
template <unsigned R, bool kMasked>
TANDEM_LANES void store_scores(const BackwardPairsTile& t, std::int64_t key, std::int64_t query,
                               const Floats (&s)[R][kPanelVectors], const Floats (&dp)[R][kPanelVectors]) {
    Floats shift[kPanelVectors], delta[kPanelVectors];
    for (unsigned j = 0; j < kPanelVectors; ++j) {
        shift[j] = load_floats(t.shift + query + j * kFloats);
        delta[j] = load_floats(t.delta + query + j * kFloats);
    }
    for (unsigned i = 0; i < R; i += 2) {
        Floats p[2][kPanelVectors], ds[2][kPanelVectors];
        for (unsigned r = 0; r < 2; ++r) {
            for (unsigned j = 0; j < kPanelVectors; ++j) {
                p[r][j] = power_of_two(fused_floats(s[i + r][j], all_lanes(t.scale), shift[j]));
                ds[r][j] = p[r][j] * (dp[i + r][j] - delta[j]);
                if constexpr (kMasked) {
                    const LaneMask blind = first_lanes(first_query(t, key + i + r) - query - j * kFloats);
                    p[r][j] = select_lanes(blind, Floats{}, p[r][j]);
                    ds[r][j] = select_lanes(blind, Floats{}, ds[r][j]);
                }
            }
            const std::int64_t at = ((key + i + r) * kPairQueries + query) / 2;
            store_pairs(t.p + at, narrow_in_order(p[r][0], p[r][1]));
            store_pairs(t.ds + at, narrow_in_order(ds[r][0], ds[r][1]));
        }
        for (unsigned j = 0; j < kPanelVectors; ++j)
            store_pairs(t.ds_pairs + (key + i) / 2 * kPairQueries + query + j * kFloats,
                        narrow_pairs(ds[0][j], ds[1][j]));
    }
}

// p and ds of keys [key, key + R) and a panel of queries from `query` on.
template <unsigned R>
TANDEM_LANES void score_block(const BackwardPairsTile& t, std::int64_t key, std::int64_t query) {
    const std::int64_t depth = (t.head_dim + 1) / 2;
    std::uint32_t* const p_at = t.p + (key * kPairQueries + query) / 2;
    std::uint32_t* const ds_at = t.ds + (key * kPairQueries + query) / 2;
    std::uint32_t* const pairs_at = t.ds_pairs + key / 2 * kPairQueries + query;
    if (first_query(t, key) >= query + kPairLanes) {
        for (unsigned i = 0; i < R; ++i) {
            store_pairs(p_at + i * kPairQueries / 2, Words{});
            store_pairs(ds_at + i * kPairQueries / 2, Words{});
            store_pairs(pairs_at + i / 2 * kPairQueries + i % 2 * kFloats, Words{});
        }
        return;
    }
    Floats s[R][kPanelVectors] = {}, dp[R][kPanelVectors] = {};
    const std::uint32_t* q_t = t.q_t + query * depth;
    const std::uint32_t* dout_t = t.dout_t + query * depth;
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
