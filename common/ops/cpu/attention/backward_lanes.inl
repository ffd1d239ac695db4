// The backward by pairs (backward_pairs.h), whatever multiplies: packing, and what lies between the products, over the
// lanes of pairs.h. backward_pairs.inl and backward_amx.inl multiply.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

using Halves = std::uint16_t __attribute__((vector_size(64)));
constexpr unsigned kPanelVectors = kPairLanes / kFloats;

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
    for (std::int64_t row = 0; row < (r.rows + 31) / 32 * 32; row += 2, to += width) {
        const std::uint16_t* from = r.from + row * r.stride;
        for (std::int64_t d = 0; d < width; d += 2 * kFloats) {
            const Words first = row < r.rows ? load_row(from + d, r.head_dim - d) : Words{};
            const Words second = row + 1 < r.rows ? load_row(from + r.stride + d, r.head_dim - d) : Words{};
            store_pairs(to + d, first_pairs(first, second));
            if (d + kFloats < width) store_pairs(to + d + kFloats, last_pairs(first, second));
        }
    }
}

void pack_turned(const PairRows& r, std::int64_t words, std::uint32_t* to) {
    for (std::int64_t row = 0; row < r.rows; row += kPairLanes, to += words * kPairLanes) {
        for (std::int64_t lane = 0; lane < kPairLanes; lane += kFloats) {
            for (std::int64_t w = 0; w < words; w += kFloats) {
                Words block[kFloats];
                for (int i = 0; i < kFloats; ++i) {
                    const std::int64_t at = row + lane + i;
                    block[i] =
                        at < r.rows ? load_row(r.from + at * r.stride + 2 * w, r.head_dim - 2 * w) : Words{};
                }
                transpose_words(block);
                for (int i = 0; i < kFloats; ++i) store_pairs(to + (w + i) * kPairLanes + lane, block[i]);
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

// No query of the panel sees keys [key, key + R).
template <unsigned R>
TANDEM_LANES void store_no_scores(const BackwardPairsTile& t, std::int64_t key, std::int64_t query) {
    for (unsigned i = 0; i < R; ++i) {
        const std::int64_t at = ((key + i) * kPairQueries + query) / 2;
        store_pairs(t.p + at, Words{});
        store_pairs(t.ds + at, Words{});
        store_pairs(t.ds_pairs + (key + i) / 2 * kPairQueries + query + i % 2 * kFloats, Words{});
    }
}
