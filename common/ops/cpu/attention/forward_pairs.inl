// The kernels of forward_pairs.h over the lanes of pairs.h: products pair by pair, and queries in rows.
#include "common/ops/cpu/attention/forward_lanes.inl"

// --- products ---

// sum[i][j] += pairs of a[i] · those of column j of b, in the order of the pairs.
template <unsigned R, unsigned C>
TANDEM_LANES void multiply_pairs(Floats (&sum)[R][C], std::int64_t pairs, const std::uint16_t* const (&a)[R],
                                 const std::uint32_t* b, std::int64_t b_row) {
    for (std::int64_t k = 0; k < pairs; ++k) {
        Words right[C];
        for (unsigned j = 0; j < C; ++j) right[j] = load_pairs(b + k * b_row + j * kBlock);
        for (unsigned i = 0; i < R; ++i) {
            const Words left = all_lanes_pair(a[i] + 2 * k);
            for (unsigned j = 0; j < C; ++j) sum[i][j] = dot_pairs(left, right[j], sum[i][j]);
        }
    }
}

// c[R, C vectors] = c · factor + a · b, rows of a kTilePairs long, factor by column of c where given.
template <unsigned R, unsigned C>
TANDEM_LANES void add_product(std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b,
                              std::int64_t b_row, const float* factor, float* c, std::int64_t c_row) {
    Floats sum[R][C];
    const std::uint16_t* rows[R];
    for (unsigned i = 0; i < R; ++i) {
        rows[i] = reinterpret_cast<const std::uint16_t*>(a + i * kTilePairs);
        for (unsigned j = 0; j < C; ++j) sum[i][j] = load_floats(c + i * c_row + j * kBlock);
    }
    if (factor != nullptr) {
        for (unsigned j = 0; j < C; ++j) {
            const Floats by = load_floats(factor + j * kBlock);
            for (unsigned i = 0; i < R; ++i) sum[i][j] = sum[i][j] * by;
        }
    }
    multiply_pairs<R, C>(sum, pairs, rows, b, b_row);
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) store_floats(c + i * c_row + j * kBlock, sum[i][j]);
    }
}

template <unsigned R, unsigned C>
void add_products(std::int64_t rows, std::int64_t pairs, const std::uint32_t* a, const std::uint32_t* b,
                  std::int64_t b_row, const float* factor, float* c, std::int64_t c_row) {
    std::int64_t i = 0;
    for (; i + R <= rows; i += R)
        add_product<R, C>(pairs, a + i * kTilePairs, b, b_row, factor, c + i * c_row, c_row);
    if constexpr (R > 1) {
        if (i < rows)
            add_products<(R > 4 ? 4 : R / 2), C>(rows - i, pairs, a + i * kTilePairs, b, b_row, factor,
                                                 c + i * c_row, c_row);
    }
}

// --- queries in lanes ---

template <unsigned R, unsigned C>
TANDEM_LANES void score_keys(const QueryLanes& t, std::int64_t key, std::int64_t column, Floats* best) {
    for (std::int64_t from = key; from < key + kBlock; from += R) {
        Floats s[R][C] = {};
        const std::uint16_t* rows[R];
        for (unsigned i = 0; i < R; ++i) rows[i] = t.k[from + i];
        multiply_pairs<R, C>(s, t.head_dim / 2, rows, t.q + column * kBlock, kLaneQueries);
        for (unsigned j = 0; j < C; ++j) {
            if (seeing(t, key + kBlock - 1, column + j) != 0xffff) {
                for (unsigned i = 0; i < R; ++i)
                    s[i][j] =
                        select_lanes(seeing(t, from + i, column + j), s[i][j], all_lanes(-__builtin_inff()));
            }
            Floats most = best[column + j];
            for (unsigned i = 0; i < R; ++i) {
                most = larger(s[i][j], most);
                store_floats(t.scores + (from + i) * kLaneQueries + (column + j) * kBlock, s[i][j]);
            }
            best[column + j] = most;
        }
    }
}

void score_block(const QueryLanes& t, std::int64_t key, std::int64_t column, std::int64_t columns,
                 Floats* best) {
    switch (columns) {
        case 4:
            return score_keys<4, 4>(t, key, column, best);
        case 3:
            return score_keys<4, 3>(t, key, column, best);
        case 2:
            return score_keys<8, 2>(t, key, column, best);
        default:
            return score_keys<16, 1>(t, key, column, best);
    }
}

void add_values(const QueryLanes& t, std::int64_t columns, const std::int64_t* seen, const float* factor) {
    if (columns == kColumns && (seen[0] + 1) / 2 == (seen[kColumns - 1] + 1) / 2) {
        add_products<4, 4>(t.head_dim, (seen[kColumns - 1] + 1) / 2, t.v_t, t.p, kLaneQueries, factor, t.acc,
                           kLaneQueries);
        return;
    }
    for (std::int64_t j = 0; j < columns; ++j) {
        if (seen[j] == 0) continue;
        add_products<16, 1>(t.head_dim, (seen[j] + 1) / 2, t.v_t, t.p + j * kBlock, kLaneQueries,
                            factor == nullptr ? nullptr : factor + j * kBlock, t.acc + j * kBlock,
                            kLaneQueries);
    }
}

// --- queries in rows ---

template <int... kLane>
TANDEM_LANES Floats neighbours(const Floats& v, LaneList<kLane...>, int step) {
    switch (step) {
        case 1:
            return __builtin_shufflevector(v, v, (kLane ^ 1)...);
        case 2:
            return __builtin_shufflevector(v, v, (kLane ^ 2)...);
        case 4:
            return __builtin_shufflevector(v, v, (kLane ^ 4)...);
        default:
            return __builtin_shufflevector(v, v, (kLane ^ 8)...);
    }
}
TANDEM_LANES Floats sum_of_lanes(Floats v) {  // in every lane
    for (int step = 1; step < kFloats; step *= 2) v = v + neighbours(v, EveryLane{}, step);
    return v;
}
TANDEM_LANES Floats most_of_lanes(Floats v) {
    for (int step = 1; step < kFloats; step *= 2) v = larger(neighbours(v, EveryLane{}, step), v);
    return v;
}

// The tile's keys lie in the first kVectors vectors.
template <unsigned R, unsigned kVectors>
void rows_block(const QueryRows& t, std::int64_t row) {
    const std::int64_t width = row_width(t.head_dim);
    Floats s[R][kVectors] = {};
    const std::uint16_t* q[R];
    for (unsigned i = 0; i < R; ++i)
        q[i] = reinterpret_cast<const std::uint16_t*>(t.q + (row + i) * t.head_dim / 2);
    multiply_pairs<R, kVectors>(s, t.head_dim / 2, q, t.k_t, kKeyTile);

    alignas(64) std::uint32_t p[R][kTilePairs];
    for (unsigned i = 0; i < R; ++i) {
        float* const acc = t.acc + (row + i) * width;
        Floats best = all_lanes(-__builtin_inff());
        for (unsigned j = 0; j < kVectors; ++j) {
            s[i][j] = select_lanes(first_lanes(t.keys - j * kFloats), s[i][j], all_lanes(-__builtin_inff()));
            best = larger(s[i][j], best);
        }
        const Floats before = all_lanes(t.max[row + i]);
        const Floats now = larger(most_of_lanes(best) * t.scale, before);
        const Floats shift = select_lanes(where_greater(now, all_lanes(-__builtin_inff())), now, Floats{});
        const Floats kept = power_of_two(before - shift);
        Floats added{};
        for (unsigned j = 0; j < kVectors; ++j) {
            s[i][j] = power_of_two(fused_floats(s[i][j], all_lanes(t.scale), -shift));
            added = added + s[i][j];
        }
        for (unsigned j = 0; j < kVectors; j += 2)
            store_pairs(p[i] + j / 2 * kFloats, narrow_in_order(s[i][j], s[i][j + 1]));
        t.sum[row + i] = fused_floats(all_lanes(t.sum[row + i]), kept, sum_of_lanes(added))[0];
        t.max[row + i] = now[0];
        if (where_greater(now, before) == 0) continue;
        for (std::int64_t d = 0; d < width; d += kFloats) store_floats(acc + d, load_floats(acc + d) * kept);
    }
    std::int64_t d = 0;
    for (; d + 4 * kFloats <= width; d += 4 * kFloats)
        add_product<R, 4>((t.keys + 1) / 2, p[0], t.v + d, width, nullptr, t.acc + row * width + d, width);
    for (; d < width; d += 2 * kFloats)
        add_product<R, 2>((t.keys + 1) / 2, p[0], t.v + d, width, nullptr, t.acc + row * width + d, width);
}

template <unsigned kVectors>
void rows_blocks(const QueryRows& t) {
    std::int64_t row = 0;
    for (; row + 4 <= t.queries; row += 4) rows_block<4, kVectors>(t, row);
    switch (t.queries - row) {
        case 3:
            return rows_block<3, kVectors>(t, row);
        case 2:
            return rows_block<2, kVectors>(t, row);
        case 1:
            return rows_block<1, kVectors>(t, row);
        default:
            return;
    }
}

void rows_tile(const QueryRows& t) {
    t.keys <= 2 * kFloats ? rows_blocks<2>(t) : rows_blocks<kKeyTile / kFloats>(t);
}

// --- packing ---

void pack_tile(const std::uint16_t* const* k, const std::uint16_t* const* v, std::int64_t keys,
               std::int64_t head_dim, std::uint32_t* k_t, std::uint32_t* v_pairs) {
    const std::int64_t pairs = head_dim / 2, width = row_width(head_dim);
    const std::int64_t read = (keys + 2 * kFloats - 1) / (2 * kFloats) * (2 * kFloats);  // by rows_tile
    for (std::int64_t key = 0; key < read; key += kFloats) {
        for (std::int64_t at = 0; at < pairs; at += kFloats) {
            Words r[kFloats];
            for (int i = 0; i < kFloats; ++i)
                r[i] = key + i < keys ? load_row_pairs(k[key + i], at, pairs) : Words{};
            transpose_words(r);
            for (int i = 0; i < kFloats && at + i < pairs; ++i)
                store_pairs(k_t + (at + i) * kKeyTile + key, r[i]);
        }
    }
    for (std::int64_t pair = 0; 2 * pair < keys; ++pair) {
        for (std::int64_t at = 0; at < pairs; at += kFloats) {
            const KeyPair both = load_key_pair(v, keys, pair, at, pairs);
            store_pairs(v_pairs + pair * width + 2 * at, both.even);
            store_pairs(v_pairs + pair * width + 2 * at + kFloats, both.odd);
        }
    }
}

template <int... kLane>
TANDEM_LANES void in_turn(const Floats& even, const Floats& odd, LaneList<kLane...>, float* to) {
    store_floats(to, __builtin_shufflevector(even, odd, (kLane / 2 + kLane % 2 * kFloats)...) + 0.0f);
    store_floats(
        to + kFloats,
        __builtin_shufflevector(even, odd, (kFloats / 2 + kLane / 2 + kLane % 2 * kFloats)...) + 0.0f);
}
void unpack_row(const float* acc, std::int64_t head_dim, float* to) {
    for (std::int64_t d = 0; d < head_dim; d += 2 * kFloats)
        in_turn(load_floats(acc + d), load_floats(acc + d + kFloats), EveryLane{}, to + d);
}
