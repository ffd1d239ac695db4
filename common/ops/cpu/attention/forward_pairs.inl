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

// Pairs [at, at + 4) of 16 keys, which begin at `row`: keys in lanes, a pair in a vector. Quarters of vectors are
// 4 x 4 pairs, which are transposed.
TANDEM_LANES void load_four_pairs(const std::uint16_t* row, std::int64_t stride, Words (&pair)[4]) {
    Words r[4];
    for (int i = 0; i < 4; ++i, row += stride)
        r[i] = load_quarters(row, row + 4 * stride, row + 8 * stride, row + 12 * stride);
    Longs half[4];  // of two keys: pairs 0 and 1, pairs 2 and 3
    for (int i = 0; i < 4; i += 2) {
        half[i] = reinterpret_cast<Longs>(__builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21,
                                                                  8, 24, 9, 25, 12, 28, 13, 29));
        half[i + 1] = reinterpret_cast<Longs>(__builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7,
                                                                      23, 10, 26, 11, 27, 14, 30, 15, 31));
    }
    for (int i = 0; i < 2; ++i) {
        pair[2 * i] =
            reinterpret_cast<Words>(__builtin_shufflevector(half[i], half[i + 2], 0, 8, 2, 10, 4, 12, 6, 14));
        pair[2 * i + 1] =
            reinterpret_cast<Words>(__builtin_shufflevector(half[i], half[i + 2], 1, 9, 3, 11, 5, 13, 7, 15));
    }
}

// One pair of 16 keys.
TANDEM_LANES Words load_pair(const std::uint16_t* row, std::int64_t stride) {
    Words result{};
    for (int i = 0; i < kFloats; ++i) result[i] = *reinterpret_cast<const WordUnaligned*>(row + i * stride);
    return result;
}

// Scores of the keys in the first kVectors vectors.
template <unsigned R, unsigned kVectors>
TANDEM_LANES void score_rows(const QueryRows& t, const std::uint16_t* const (&q)[R], Floats (&s)[R][kVectors],
                             const std::byte* const* next) {
    const std::int64_t pairs = t.head_dim / 2;
    std::int64_t at = 0;
    const std::int64_t in_lines = t.stride % kLineStride == 0 ? pairs : 0;
    for (; at + kFloats <= in_lines; at += kFloats) {
#pragma GCC unroll 4
        for (unsigned j = 0; j < kVectors; ++j) {
            Words right[kFloats];
            ask_ahead(next, j, kVectors, at, kFloats);
            for (int n = 0; n < kFloats; ++n) right[n] = load_pairs(t.k[j] + n * t.stride + 2 * at);
            transpose_words(right);
            for (int n = 0; n < kFloats; ++n) {
                for (unsigned i = 0; i < R; ++i)
                    s[i][j] = dot_pairs(all_lanes_pair(q[i] + 2 * (at + n)), right[n], s[i][j]);
            }
        }
    }
    for (; at + 4 <= pairs; at += 4) {
#pragma GCC unroll 4
        for (unsigned j = 0; j < kVectors; ++j) {
            Words right[4];
            ask_ahead(next, j, kVectors, at, 4);
            load_four_pairs(t.k[j] + 2 * at, t.stride, right);
            for (int n = 0; n < 4; ++n) {
                for (unsigned i = 0; i < R; ++i)
                    s[i][j] = dot_pairs(all_lanes_pair(q[i] + 2 * (at + n)), right[n], s[i][j]);
            }
        }
    }
    for (; at < pairs; ++at) {
#pragma GCC unroll 4
        for (unsigned j = 0; j < kVectors; ++j) {
            const Words right = load_pair(t.k[j] + 2 * at, t.stride);
            for (unsigned i = 0; i < R; ++i)
                s[i][j] = dot_pairs(all_lanes_pair(q[i] + 2 * at), right, s[i][j]);
        }
    }
}

// Columns [at, at + C vectors) of acc, both in pairs: + p · v.
template <unsigned R, unsigned C>
TANDEM_LANES void add_value_rows(const QueryRows& t, std::int64_t at, const std::uint32_t* p, float* acc,
                                 const std::byte* const* next) {
    const std::int64_t width = row_width(t.head_dim), pairs = t.head_dim / 2;
    Floats sum[R][C];
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) sum[i][j] = load_floats(acc + i * width + 2 * at + j * kFloats);
    }
    for (std::int64_t key = 0; key < t.keys; key += 2) {
        const std::uint16_t* const first = t.v[key / kKeyRows] + key % kKeyRows * t.stride;
        const std::uint16_t* const rows[2] = {first, first + t.stride};
        ask_ahead(next, key / kKeyRows, (t.keys + kKeyRows - 1) / kKeyRows, at + key % kKeyRows / 2 * C, C);
        for (unsigned j = 0; j < C; j += 2) {
            const KeyPair both = load_key_pair(rows, t.keys - key, 0, at + j / 2 * kFloats, pairs);
            for (unsigned i = 0; i < R; ++i) {
                const Words left = all_lanes_pair(p + i * kTilePairs + key / 2);
                sum[i][j] = dot_pairs(left, both.even, sum[i][j]);
                sum[i][j + 1] = dot_pairs(left, both.odd, sum[i][j + 1]);
            }
        }
    }
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) store_floats(acc + i * width + 2 * at + j * kFloats, sum[i][j]);
    }
}

// The tile's keys lie in the first kVectors vectors.
template <unsigned R, unsigned kVectors>
void rows_block(const QueryRows& t, std::int64_t row) {
    const std::int64_t width = row_width(t.head_dim);
    Floats s[R][kVectors] = {};
    const std::uint16_t* q[R];
    for (unsigned i = 0; i < R; ++i)
        q[i] = reinterpret_cast<const std::uint16_t*>(t.q + (row + i) * t.head_dim / 2);
    const bool first = row == 0;
    score_rows<R, kVectors>(t, q, s, first ? t.next_k : nullptr);

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
            store_pairs(p[i] + j / 2 * kFloats,
                        narrow_in_order(s[i][j], j + 1 < kVectors ? s[i][j + 1] : Floats{}));
        t.sum[row + i] = fused_floats(all_lanes(t.sum[row + i]), kept, sum_of_lanes(added))[0];
        t.max[row + i] = now[0];
        if (where_greater(now, before) == 0) continue;
        for (std::int64_t d = 0; d < width; d += kFloats) store_floats(acc + d, load_floats(acc + d) * kept);
    }
    const std::byte* const* const next = first ? t.next_v : nullptr;
    std::int64_t at = 0;
    for (; 2 * at + 4 * kFloats <= width; at += 2 * kFloats)
        add_value_rows<R, 4>(t, at, p[0], t.acc + row * width, next);
    for (; 2 * at < width; at += kFloats) add_value_rows<R, 2>(t, at, p[0], t.acc + row * width, next);
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
    switch ((t.keys - 1) / kFloats) {
        case 0:
            return rows_blocks<1>(t);
        case 1:
            return rows_blocks<2>(t);
        case 2:
            return rows_blocks<3>(t);
        default:
            return rows_blocks<4>(t);
    }
}

// --- packing ---

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
