// The attention kernels, written once over a vector type V of kWidth floats. The including file defines V,
// kWidth, kPanel (vectors a panel) and kRows (rows a block): kRows * kPanel accumulators must fit the
// registers.
//
// Every element of a product is one chain of fused multiply-adds in the order of the inner index, whatever
// block it falls into, and these files are compiled without contraction. So a row's values do not depend on
// its neighbours, on where a tile of queries starts, or on how many there are.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

static_assert(kStateRows % kWidth == 0);

#define TANDEM_INLINE static inline __attribute__((always_inline))

TANDEM_INLINE V load(const float* p) {
    return *reinterpret_cast<const VUnaligned*>(p);
}
TANDEM_INLINE void store(float* p, V v) {
    *reinterpret_cast<VUnaligned*>(p) = v;
}
using U = std::uint32_t __attribute__((vector_size(kWidth * 4)));
using Half = std::uint16_t __attribute__((vector_size(kWidth * 2)));
using HalfUnaligned __attribute__((vector_size(kWidth * 2), aligned(2), may_alias)) = std::uint16_t;

TANDEM_INLINE Half load_half(const std::uint16_t* p) {
    return *reinterpret_cast<const HalfUnaligned*>(p);
}
TANDEM_INLINE V widened(const std::uint16_t* bfloat16s) {
    return reinterpret_cast<V>(__builtin_convertvector(load_half(bfloat16s), U) << 16);
}
TANDEM_INLINE V widened(const float* floats) {
    return load(floats);
}
TANDEM_INLINE V splat(float x) {
    return V{} + x;
}

// c[R, C vectors] += a[R, depth] · b[depth, C vectors]; element (i, k) of a is a[i * a_row + k * a_depth].
template <unsigned R, unsigned C>
TANDEM_INLINE void block(std::int64_t depth, const float* a, std::int64_t a_row, std::int64_t a_depth,
                         const float* b, std::int64_t b_row, float* c, std::int64_t c_row, bool accumulate) {
    V sum[R][C];
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) sum[i][j] = accumulate ? load(c + i * c_row + j * kWidth) : V{};
    }
    for (std::int64_t k = 0; k < depth; ++k) {
        V right[C];
        for (unsigned j = 0; j < C; ++j) right[j] = load(b + k * b_row + j * kWidth);
        for (unsigned i = 0; i < R; ++i) {
            const V left = splat(a[i * a_row + k * a_depth]);
            for (unsigned j = 0; j < C; ++j) sum[i][j] = fused(left, right[j], sum[i][j]);
        }
    }
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) store(c + i * c_row + j * kWidth, sum[i][j]);
    }
}

template <unsigned R, unsigned C>
void panel_rows(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_row,
                std::int64_t a_depth, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
                bool accumulate) {
    std::int64_t i = 0;
    for (; i + R <= rows; i += R)
        block<R, C>(depth, a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row, c_row, accumulate);
    if constexpr (R > 1) {
        if (i < rows)
            panel_rows<R / 2, C>(rows - i, depth, a + i * a_row, a_row, a_depth, b, b_row, c + i * c_row,
                                 c_row, accumulate);
    }
}

// c[rows, columns] (+)= a · b with `columns` a multiple of 16.
void product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t a_row,
             std::int64_t a_depth, const float* b, std::int64_t b_row, float* c, std::int64_t c_row,
             bool accumulate) {
    std::int64_t j = 0;
    for (; j + kPanel * kWidth <= columns; j += kPanel * kWidth) {
        panel_rows<kRows, kPanel>(rows, depth, a, a_row, a_depth, b + j, b_row, c + j, c_row, accumulate);
    }
    for (; j < columns; j += kWidth) {
        panel_rows<2 * kRows, 1>(rows, depth, a, a_row, a_depth, b + j, b_row, c + j, c_row, accumulate);
    }
}

// e^x, x <= 0 up to rounding; 0 below -87.3.
TANDEM_INLINE V exponential(V x) {
    const V low = splat(-87.3f);
    return x < low ? V{} : exponential_of_normal(x < low ? low : x);
}

#if defined(__clang__)  // has it for constants only
TANDEM_INLINE V shuffle(const V& a, const V& b, const I& from) {
    V result;
    for (int l = 0; l < kWidth; ++l) result[l] = from[l] < kWidth ? a[from[l]] : b[from[l] - kWidth];
    return result;
}
#else
TANDEM_INLINE V shuffle(const V& a, const V& b, const I& from) {
    return __builtin_shuffle(a, b, from);
}
#endif

// a and b exchange a's lanes with kStep in their numbers for b's without.
template <unsigned kStep>
TANDEM_INLINE void exchange(V& a, V& b) {
    I low;
    I high;
    for (unsigned l = 0; l < kWidth; ++l) {
        low[l] = static_cast<std::int32_t>((l & kStep) ? kWidth + l - kStep : l);
        high[l] = static_cast<std::int32_t>((l & kStep) ? kWidth + l : l + kStep);
    }
    const V was = a;
    a = shuffle(was, b, low);
    b = shuffle(was, b, high);
}

template <unsigned kStep = kWidth / 2>
TANDEM_INLINE void transpose(V (&r)[kWidth]) {
    for (unsigned i = 0; i < kWidth; ++i)
        if ((i & kStep) == 0) exchange<kStep>(r[i], r[i + kStep]);
    if constexpr (kStep > 1) transpose<kStep / 2>(r);
}

// Lane i: the sum of r[i]'s lanes, from the first to the last. r is overwritten.
TANDEM_INLINE V lane_sums(V (&r)[kWidth]) {
    transpose(r);
    V total = V{};
    for (const V& lanes : r) total = total + lanes;
    return total;
}

// Lane i: the largest of r[i]'s lanes. In halves, for the order changes no bit. r is overwritten.
template <unsigned kStep = kWidth / 2>
TANDEM_INLINE V lane_maxima(V (&r)[kWidth]) {
    for (unsigned i = 0; i < kStep; ++i) {
        exchange<kStep>(r[i], r[i + kStep]);
        r[i] = r[i] > r[i + kStep] ? r[i] : r[i + kStep];
    }
    if constexpr (kStep > 1) return lane_maxima<kStep / 2>(r);
    return r[0];
}

TANDEM_INLINE I lanes_before(std::int64_t end) {
    I lane;
    for (int i = 0; i < kWidth; ++i) lane[i] = i;
    return lane < I{} + static_cast<std::int32_t>(end);
}

// Keys of the tile that row `row` sees, and none before it more. What lies past them adds exact zeros, so leaving it out
// changes no bit.
template <typename Tile>
TANDEM_INLINE std::int64_t seen_keys(const Tile& t, std::int64_t row) {
    const std::int64_t visible = t.visible + row * t.visible_step;
    return visible < 0 ? 0 : (visible > t.keys ? t.keys : visible);
}
template <typename Tile>
TANDEM_INLINE std::int64_t seen_keys(const Tile& t) {
    return seen_keys(t, t.rows - 1);
}

// Keys that a row may see, in whole vectors of any machine.
TANDEM_INLINE std::int64_t whole_vectors(std::int64_t seen) {
    return (seen + kKeyRows - 1) / kKeyRows * kKeyRows;
}

// f(row, rows, seen) for a few rows at a time, with the keys that the last of them sees: on the diagonal of a causal mask
// the first see far fewer than the last. Whole blocks of `product`, also where it takes them twice as high.
constexpr std::int64_t kDiagonalRows = 2 * kRows;
template <typename Tile, typename F>
TANDEM_INLINE void for_rows(const Tile& t, F f) {
    for (std::int64_t row = 0; row < t.rows; row += kDiagonalRows) {
        const std::int64_t rows = row + kDiagonalRows < t.rows ? kDiagonalRows : t.rows - row;
        f(row, rows, seen_keys(t, row + rows - 1));
    }
}

// Rows [first, first + rows) of the scores become e^(score - max) where they see keys, 0 where another row of the tile
// does. Sums so far follow the maxima. What is one number a row stands in one vector for all of them.
TANDEM_INLINE void soften(const ForwardTile& t, std::int64_t first, std::int64_t rows) {
    const V none = splat(-__builtin_inff());
    const std::int64_t columns = whole_vectors(seen_keys(t));
    V of_row[kWidth];
    for (std::int64_t i = 0; i < kWidth; ++i) of_row[i] = none;
    float* scores = t.scores + first * kKeyTile;
    for (std::int64_t i = 0; i < rows; ++i, scores += kKeyTile) {
        const std::int64_t seen = seen_keys(t, first + i), whole = seen / kWidth * kWidth;
        V best = none;
        for (std::int64_t key = 0; key < whole; key += kWidth) {
            const V s = load(scores + key);
            best = s > best ? s : best;
        }
        if (whole < seen) {
            const V s = lanes_before(seen - whole) ? load(scores + whole) : none;
            store(scores + whole, s);
            best = s > best ? s : best;
        }
        of_row[i] = best;
    }
    const V tile_max = lane_maxima(of_row), old_max = load(t.max + first), old_sum = load(t.sum + first);
    const V new_max = tile_max > old_max ? tile_max : old_max;
    const V shift = new_max == none ? V{} : new_max;
    // Where the maximum stays the factor is 1, or of nothing.
    const I rises = (new_max > old_max) & (old_max > none);
    const V factor = exponential(old_max - shift);
    scores = t.scores + first * kKeyTile;
    for (std::int64_t i = 0; i < kWidth; ++i) of_row[i] = V{};
    for (std::int64_t i = 0; i < rows; ++i, scores += kKeyTile) {
        const std::int64_t seen = seen_keys(t, first + i);
        V total = V{};
        std::int64_t key = 0;
        for (; key < seen; key += kWidth) {
            const V p = exponential(load(scores + key) - shift[i]);
            store(scores + key, p);
            total = total + p;
        }
        for (; key < columns; key += kWidth) store(scores + key, V{});
        of_row[i] = total;
    }
    store(t.sum + first, (rises ? old_sum * factor : old_sum) + lane_sums(of_row));
    store(t.max + first, new_max);
    for (std::int64_t i = 0; i < rows; ++i) {
        if (!rises[i]) continue;
        float* acc = t.acc + (first + i) * t.width;
        for (std::int64_t d = 0; d < t.width; d += kWidth) store(acc + d, load(acc + d) * factor[i]);
    }
}

TANDEM_INLINE void soften(const ForwardTile& t) {
    for (std::int64_t first = 0; first < t.rows; first += kWidth)
        soften(t, first, first + kWidth < t.rows ? kWidth : t.rows - first);
}

// to[rows, kKeyTile] = a[rows, width] · b[head_dim, kKeyTile] where keys are seen.
template <typename Tile>
TANDEM_INLINE void score(const Tile& t, const float* a, const float* b, float* to) {
    for_rows(t, [&](std::int64_t row, std::int64_t rows, std::int64_t seen) {
        product(rows, whole_vectors(seen), t.head_dim, a + row * t.width, t.width, 1, b, kKeyTile,
                to + row * kKeyTile, kKeyTile, false);
    });
}

// to[rows, width] += p[rows, kKeyTile] · b[kKeyTile, width] of the keys that are seen.
template <typename Tile>
TANDEM_INLINE void add_seen(const Tile& t, const float* p, const float* b, float* to) {
    for_rows(t, [&](std::int64_t row, std::int64_t rows, std::int64_t seen) {
        product(rows, t.width, seen, p + row * kKeyTile, kKeyTile, 1, b, t.width, to + row * t.width, t.width,
                true);
    });
}

void forward_tile(const ForwardTile& t) {
    score(t, t.q, t.k_t, t.scores);
    soften(t);
    add_seen(t, t.scores, t.v, t.acc);
}

// to[keys, width] += pᵀ[keys, rows] · b[rows, width] of the rows that see a key.
TANDEM_INLINE void add_seeing(const BackwardTile& t, const float* p, const float* b, float* to) {
    const std::int64_t seen = seen_keys(t);
    for (std::int64_t key = 0; key < seen; key += kDiagonalRows) {
        const std::int64_t keys = key + kDiagonalRows < seen ? kDiagonalRows : seen - key;
        const std::int64_t row = key < t.visible ? 0 : (key - t.visible) / t.visible_step + 1;
        product(keys, t.width, t.rows - row, p + row * kKeyTile + key, 1, kKeyTile, b + row * t.width,
                t.width, to + key * t.width, t.width, true);
    }
}

void backward_tile(const BackwardTile& t) {
    const std::int64_t columns = whole_vectors(seen_keys(t));
    score(t, t.q, t.k_t, t.scores);
    score(t, t.dout, t.v_t, t.dscores);
    for (std::int64_t row = 0; row < t.rows; ++row) {
        const std::int64_t seen = t.lse[row] == -__builtin_inff() ? 0 : seen_keys(t, row);
        float* scores = t.scores + row * kKeyTile;
        float* dscores = t.dscores + row * kKeyTile;
        std::int64_t key = 0;
        for (; key < seen; key += kWidth) {
            V p = exponential(fused(load(scores + key), splat(t.scale), splat(-t.lse[row])));
            V ds = p * (load(dscores + key) - t.delta[row]) * t.scale;
            if (key + kWidth > seen) {
                const I lanes = lanes_before(seen - key);
                p = lanes ? p : V{};
                ds = lanes ? ds : V{};
            }
            store(scores + key, p);
            store(dscores + key, ds);
        }
        for (; key < columns; key += kWidth) {
            store(scores + key, V{});
            store(dscores + key, V{});
        }
    }
    add_seeing(t, t.scores, t.dout, t.dv);
    add_seeing(t, t.dscores, t.q, t.dk);
    add_seen(t, t.dscores, t.k, t.dq);
}

void transpose_tile(const float* from, std::int64_t stride, std::int64_t keys, std::int64_t head_dim,
                    float* to) {
    for (std::int64_t j = 0; j < kKeyTile; j += kWidth) {
        for (std::int64_t d = 0; d < head_dim; d += kWidth) {
            V r[kWidth];
            for (int i = 0; i < kWidth; ++i) r[i] = j + i < keys ? load(from + (j + i) * stride + d) : V{};
            transpose(r);
            for (int i = 0; i < kWidth; ++i) {
                if (d + i < head_dim) store(to + (d + i) * kKeyTile + j, r[i]);
            }
        }
    }
}

#include "common/ops/cpu/attention/key_rows.inl"

#include "common/ops/cpu/attention/pack.inl"
