// Attention's forward with queries in lanes (forward_pairs.h), whatever multiplies: the source that includes this
// defines score_block and add_values, by pairs (forward_pairs.inl) or by tiles of AMX (forward_amx.inl). Compiled
// without contraction.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

constexpr std::int64_t kBlock = 16;  // keys, or queries, of a vector
constexpr std::int64_t kColumns = kLaneQueries / kBlock;
constexpr std::int64_t kTilePairs = kKeyTile / 2;

TANDEM_LANES std::int64_t between(std::int64_t low, std::int64_t value, std::int64_t high) {
    return value < low ? low : (value > high ? high : value);
}

// Scores of 16 keys, from `key` on, for columns [column, column + columns) of queries; what a query does not see is
// -inf. `best` [kColumns] keeps the maxima.
void score_block(const QueryLanes& t, std::int64_t key, std::int64_t column, std::int64_t columns,
                 Floats* best);

// Of `columns` columns those that see a key of the tile: acc = acc · factor + v^T p, over keys [0, seen[column])
// rounded up to pairs at least. No factor: 1.
void add_values(const QueryLanes& t, std::int64_t columns, const std::int64_t* seen, const float* factor);

// --- queries in lanes ---

// How many keys of the tile the last query of a column sees.
TANDEM_LANES std::int64_t seen_by_column(const QueryLanes& t, std::int64_t column) {
    const std::int64_t last = between(0, column * kBlock + kBlock, t.queries) - 1;
    return between(0, t.visible + last * t.visible_step, t.keys);
}

// Queries of a column that see the key.
TANDEM_LANES LaneMask seeing(const QueryLanes& t, std::int64_t key, std::int64_t column) {
    if (key >= t.keys) return 0;
    if (t.visible_step == 0) return first_lanes(key < t.visible ? kBlock : 0);
    return static_cast<LaneMask>(~first_lanes(key + 1 - t.visible - column * kBlock));
}

// Scores of a column become probabilities, keys [0, blocks * 16). Their sum: a strand for each key modulo 16, then
// neighbours together.
TANDEM_LANES Floats raise_column(const QueryLanes& t, std::int64_t column, std::int64_t blocks,
                                 const Floats& shift) {
    const Floats scale = all_lanes(t.scale);
    const float* const scores = t.scores + column * kBlock;
    std::uint32_t* const p = t.p + column * kBlock;
    Floats level[4];  // of the tree over strands: what waits for its neighbour
    for (unsigned pair = 0; pair < kBlock / 2; ++pair) {
        Floats even{}, odd{};
        for (std::int64_t block = 0; block < blocks; ++block) {
            const std::int64_t key = block * kBlock + 2 * pair;
            const Floats p0 =
                power_of_two(fused_floats(load_floats(scores + key * kLaneQueries), scale, shift));
            const Floats p1 =
                power_of_two(fused_floats(load_floats(scores + (key + 1) * kLaneQueries), scale, shift));
            store_pairs(p + key / 2 * kLaneQueries, narrow_pairs(p0, p1));
            even = even + p0;
            odd = odd + p1;
        }
        Floats together = even + odd;
        unsigned at = 0;
        for (; (pair >> at & 1) != 0; ++at) together = level[at] + together;
        level[at] = together;
    }
    return level[3];
}

void lanes_tile(const QueryLanes& t) {
    const std::int64_t columns = (t.queries + kBlock - 1) / kBlock;
    std::int64_t seen[kColumns] = {};
    for (std::int64_t j = 0; j < columns; ++j) seen[j] = seen_by_column(t, j);
    const std::int64_t most = seen[columns - 1];

    Floats best[kColumns];
    for (Floats& b : best) b = all_lanes(-__builtin_inff());
    for (std::int64_t key = 0, column = 0; key < most; key += kBlock) {
        while (seen[column] <= key) ++column;
        score_block(t, key, column, columns - column, best);
    }

    alignas(64) float factor[kLaneQueries];
    bool rose = false;
    for (std::int64_t j = 0; j < columns; ++j) {
        const Floats before = load_floats(t.max + j * kBlock);
        if (seen[j] == 0) {
            store_floats(factor + j * kBlock, all_lanes(1.0f));
            continue;
        }
        const Floats now = larger(best[j] * t.scale, before);
        const Floats shift = select_lanes(where_greater(now, all_lanes(-__builtin_inff())), now, Floats{});
        const Floats kept = power_of_two(before - shift);
        const Floats added = raise_column(t, j, (seen[j] + kBlock - 1) / kBlock, -shift);
        store_floats(t.sum + j * kBlock, fused_floats(load_floats(t.sum + j * kBlock), kept, added));
        store_floats(t.max + j * kBlock, now);
        store_floats(factor + j * kBlock, kept);
        rose = rose || where_greater(now, before) != 0;
    }

    add_values(t, columns, seen, rose ? factor : nullptr);
}

// --- packing ---

// 16 pairs of a row from pair `at` on; 0 past the last, which is not read.
TANDEM_LANES Words load_row_pairs(const std::uint16_t* row, std::int64_t at, std::int64_t pairs) {
    return at + kFloats <= pairs ? load_pairs(row + 2 * at)
                                 : load_pairs(row + 2 * at, first_lanes(pairs - at));
}

void pack_lanes(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t head_dim,
                std::uint32_t flip, std::uint32_t* to) {
    const std::int64_t pairs = head_dim / 2;
    for (std::int64_t row = 0; row < kLaneQueries; row += kFloats) {
        for (std::int64_t at = 0; at < pairs; at += kFloats) {
            Words r[kFloats];
            for (int i = 0; i < kFloats; ++i)
                r[i] = row + i < rows ? load_row_pairs(from + (row + i) * stride, at, pairs) ^ flip : Words{};
            transpose_words(r);
            for (int i = 0; i < kFloats; ++i) store_pairs(to + (at + i) * kLaneQueries + row, r[i]);
        }
    }
}

void unpack_lanes(const float* acc, std::int64_t queries, std::int64_t head_dim, std::int64_t width,
                  float* to) {
    for (std::int64_t row = 0; row < queries; row += kFloats) {
        for (std::int64_t d = 0; d < head_dim; d += kFloats) {
            Words r[kFloats];
            for (int i = 0; i < kFloats; ++i) {
                const bool there = d + i < head_dim;  // + 0: a zero has no sign
                r[i] = there ? reinterpret_cast<Words>(load_floats(acc + (d + i) * kLaneQueries + row) + 0.0f)
                             : Words{};
            }
            transpose_words(r);
            for (int i = 0; i < kFloats && row + i < queries; ++i)
                store_pairs(to + (row + i) * width + d, r[i]);
        }
    }
}

// Rows 2 * pair and 2 * pair + 1 side by side: of 32 columns the even ones, and the odd ones.
struct KeyPair {
    Words even, odd;
};
TANDEM_LANES KeyPair load_key_pair(const std::uint16_t* const* rows, std::int64_t keys, std::int64_t pair,
                                   std::int64_t at, std::int64_t pairs) {
    const Words first = 2 * pair < keys ? load_row_pairs(rows[2 * pair], at, pairs) : Words{};
    const Words second = 2 * pair + 1 < keys ? load_row_pairs(rows[2 * pair + 1], at, pairs) : Words{};
    return {(first & 0xffffU) | (second << 16), (first >> 16) | (second & 0xffff0000U)};
}

void pack_values(const std::uint16_t* const* rows, std::int64_t keys, std::int64_t head_dim,
                 std::uint32_t* to) {
    const std::int64_t pairs = head_dim / 2;
    for (std::int64_t key = 0; key < kTilePairs; key += kFloats) {
        for (std::int64_t at = 0; at < pairs; at += kFloats) {
            Words even[kFloats], odd[kFloats];
            for (int i = 0; i < kFloats; ++i) {
                const KeyPair both = load_key_pair(rows, keys, key + i, at, pairs);
                even[i] = both.even;
                odd[i] = both.odd;
            }
            transpose_words(even);
            transpose_words(odd);
            for (int i = 0; i < kFloats && at + i < pairs; ++i) {
                store_pairs(to + 2 * (at + i) * kTilePairs + key, even[i]);
                store_pairs(to + (2 * (at + i) + 1) * kTilePairs + key, odd[i]);
            }
        }
    }
}
