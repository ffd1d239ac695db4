// The kernels of pair_products.h over lanes that the including file has: those of attention/pairs.h, or fewer. Rows (Left) are
// of bfloat16 (std::uint16_t), by pairs alone and where TANDEM_DOT_PAIRS says that the lanes have dot_pairs, or of float32.
// Compiled without contraction.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

constexpr std::int64_t kGroupRows = 6;  // times so many vectors: the accumulators that registers hold
constexpr std::int64_t kMostVectors = kFloats == 16 ? 4 : 2;
constexpr std::int64_t kPairsAtOnce = 4;  // between two looks ahead
constexpr std::int64_t kLine = 64;        // bytes of memory that come at once

// How b is read. Few rows wait for memory: small panels, each from the nearest cache to all groups of rows, asked for
// some way ahead. More rows wait for the sums: long panels, which keep them in registers, a block (or a long panel)
// asked for while the one before is multiplied.
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kShortPanel = kPairChain;  // numbers of k: at most 16 KB of b
constexpr std::int64_t kLongPanel = 1024;         // at most 128 KB
constexpr std::int64_t kShortAhead = 32 * 1024;   // bytes from what is multiplied to what is asked for
// Rows of float32 wait for the sums later, and would widen b once for each group: from some rows on a panel is widened
// before, and stays in the nearest cache, as one does that is float32 already.
constexpr std::int64_t kFewWideRows = 12;
constexpr std::int64_t kFloatPanel = 4096;  // numbers of b: 16 KB, of which whole tiles are taken
constexpr std::int64_t kTileNumbers = 32;   // of k, that pack_tiles pads to

std::int64_t smaller(std::int64_t x, std::int64_t y) {
    return x < y ? x : y;
}

// Columns of a block: known to the compiler where all are as narrow as two vectors.
std::int64_t columns_of(std::int64_t columns) {
    return kFloats == 16 ? columns : kAvx2Columns;
}

// Asks for `lines` of memory from there on; returns what follows them.
TANDEM_LANES const char* look_ahead(const char* at, std::int64_t lines) {
    for (std::int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + i * kLine, 0, 2);
    return at + lines * kLine;
}

// A panel: some columns of b (C vectors), some numbers of k.
template <typename Right>
struct Panel {
    std::int64_t numbers;  // of k
    const Right* b;        // pairs of k, each kRows<Right> * columns after the one before
    std::int64_t columns;
    bool first;          // of a chain: the sums begin at 0
    std::int64_t lines;  // that each group of rows asks for every kPairsAtOnce pairs
    std::int64_t bytes;  // that all groups together ask for: as many as b had before it was widened
};
// Of a pair: one of words that hold both numbers, or one of first and one of second numbers in float32.
template <typename Right>
constexpr std::int64_t kRows = 1;
template <>
constexpr std::int64_t kRows<float> = 2;

template <unsigned C>
TANDEM_LANES void load_row(const float* from, Floats (&to)[C]) {
    for (unsigned j = 0; j < C; ++j) to[j] = load_floats(from + j * kFloats);
}
template <unsigned C>
TANDEM_LANES void load_row(const std::uint32_t* from, Words (&to)[C]) {
    for (unsigned j = 0; j < C; ++j) to[j] = load_pairs(from + j * kFloats);
}
template <unsigned C>
TANDEM_LANES void load_first(const std::uint32_t* from, Floats (&to)[C]) {
    for (unsigned j = 0; j < C; ++j) to[j] = reinterpret_cast<Floats>(load_pairs(from + j * kFloats) << 16);
}
template <unsigned C>
TANDEM_LANES void load_second(const std::uint32_t* from, Floats (&to)[C]) {
    for (unsigned j = 0; j < C; ++j)
        to[j] = reinterpret_cast<Floats>(load_pairs(from + j * kFloats) & 0xffff0000U);
}

// One number of k: sum[i][j] += a's row i · right[j].
template <unsigned R, unsigned C>
TANDEM_LANES void add_number(Floats (&sum)[R][C], const float* a, std::int64_t a_row,
                             const Floats (&right)[C]) {
    for (unsigned i = 0; i < R; ++i) {
        const Floats left = all_lanes_float(a + i * a_row);
        for (unsigned j = 0; j < C; ++j) sum[i][j] = fused_floats(left, right[j], sum[i][j]);
    }
}

// One pair of k, of the panel's pair at b.
#if defined(TANDEM_DOT_PAIRS)
template <unsigned R, unsigned C>
TANDEM_LANES void add_pair(Floats (&sum)[R][C], const std::uint16_t* a, std::int64_t a_row,
                           const std::uint32_t* b, std::int64_t) {
    Words right[C];
    load_row(b, right);
    for (unsigned i = 0; i < R; ++i) {
        const Words left = all_lanes_pair(a + i * a_row);
        for (unsigned j = 0; j < C; ++j) sum[i][j] = dot_pairs(left, right[j], sum[i][j]);
    }
}
#endif
template <unsigned R, unsigned C>
TANDEM_LANES void add_pair(Floats (&sum)[R][C], const float* a, std::int64_t a_row, const std::uint32_t* b,
                           std::int64_t) {
    Floats right[C];
    load_first(b, right);
    add_number(sum, a, a_row, right);
    load_second(b, right);
    add_number(sum, a + 1, a_row, right);
}
template <unsigned R, unsigned C>
TANDEM_LANES void add_pair(Floats (&sum)[R][C], const float* a, std::int64_t a_row, const float* b,
                           std::int64_t columns) {
    Floats right[C];
    load_row(b, right);
    add_number(sum, a, a_row, right);
    load_row(b + columns, right);
    add_number(sum, a + 1, a_row, right);
}

std::int64_t groups_of(std::int64_t rows) {
    return (rows + kGroupRows - 1) / kGroupRows;
}

// sums[R, kMostPairColumns] of R rows of a, and the panel. (Sums that were set to 0 and then loaded would go through
// memory.)
template <unsigned R, unsigned C, typename Left, typename Right>
TANDEM_LANES void add_panel(const Panel<Right>& p, const Left* a, std::int64_t a_row, float* sums,
                            const char* ahead) {
    Floats sum[R][C];
    for (unsigned i = 0; i < R; ++i)
        for (unsigned j = 0; j < C; ++j)
            sum[i][j] = p.first ? Floats{} : load_floats(sums + i * kMostPairColumns + j * kFloats);
    const std::int64_t pairs = p.numbers / 2, columns = columns_of(p.columns),
                       b_pair = kRows<Right> * columns;
    std::int64_t k = 0;
    for (; k + kPairsAtOnce <= pairs; k += kPairsAtOnce) {
        ahead = look_ahead(ahead, p.lines);
        if constexpr (kFloats == 16) {
            for (std::int64_t i = k; i < k + kPairsAtOnce; ++i)
                add_pair(sum, a + 2 * i, a_row, p.b + i * b_pair, columns);
        } else {  // of 16 registers, such a loop leaves the sums in memory
            add_pair(sum, a + 2 * k, a_row, p.b + k * b_pair, columns);
            add_pair(sum, a + 2 * k + 2, a_row, p.b + (k + 1) * b_pair, columns);
            add_pair(sum, a + 2 * k + 4, a_row, p.b + (k + 2) * b_pair, columns);
            add_pair(sum, a + 2 * k + 6, a_row, p.b + (k + 3) * b_pair, columns);
        }
    }
    for (; k < pairs; ++k) add_pair(sum, a + 2 * k, a_row, p.b + k * b_pair, columns);
    if (p.numbers % 2 != 0) {  // the last number of a row has no second
        Left last[R][2] = {};
        for (unsigned i = 0; i < R; ++i) last[i][0] = a[i * a_row + 2 * pairs];
        add_pair(sum, last[0], 2, p.b + pairs * b_pair, columns);
    }
    for (unsigned i = 0; i < R; ++i)
        for (unsigned j = 0; j < C; ++j) store_floats(sums + i * kMostPairColumns + j * kFloats, sum[i][j]);
}

template <unsigned C, typename Left, typename Right>
void add_rows(const Panel<Right>& p, std::int64_t rows, const Left* a, std::int64_t a_row, float* sums,
              const char* ahead) {
    switch (rows) {
        case 6:
            return add_panel<6, C>(p, a, a_row, sums, ahead);
        case 5:
            return add_panel<5, C>(p, a, a_row, sums, ahead);
        case 4:
            return add_panel<4, C>(p, a, a_row, sums, ahead);
        case 3:
            return add_panel<3, C>(p, a, a_row, sums, ahead);
        case 2:
            return add_panel<2, C>(p, a, a_row, sums, ahead);
        default:
            return add_panel<1, C>(p, a, a_row, sums, ahead);
    }
}

// All rows, in groups of about the same size, each looking ahead for its part.
template <unsigned C, typename Left, typename Right>
void add_groups(const Panel<Right>& p, std::int64_t rows, const Left* a, std::int64_t a_row, float* sums,
                const char* ahead) {
    const std::int64_t groups = groups_of(rows), more = rows % groups;
    const std::int64_t lines = p.bytes / kLine / groups;
    for (std::int64_t group = 0, from = 0; group < groups; ++group) {
        const std::int64_t count = rows / groups + (group < more ? 1 : 0);
        add_rows<C>(p, count, a + from * a_row, a_row, sums + from * kMostPairColumns,
                    ahead + group * lines * kLine);
        from += count;
    }
}

// What the groups of rows multiply by: b as it lies, or widened.
template <unsigned C, typename Left, typename Right>
void add_columns(const Panel<Right>& p, std::int64_t rows, const Left* a, std::int64_t a_row, float* sums,
                 const char* ahead) {
    add_groups<C>(p, rows, a, a_row, sums, ahead);
}
template <unsigned C>
void add_columns(const Panel<std::uint32_t>& p, std::int64_t rows, const float* a, std::int64_t a_row,
                 float* sums, const char* ahead) {
    if (rows <= kFewWideRows) return add_groups<C>(p, rows, a, a_row, sums, ahead);
    const std::int64_t wide_columns = columns_of(std::int64_t{C} * kFloats);
    alignas(64) float wide[kFloatPanel];
    for (std::int64_t pair = 0; pair < (p.numbers + 1) / 2; ++pair) {
        const std::uint32_t* const from = p.b + pair * p.columns;
        float* const to = wide + pair * 2 * wide_columns;
        Floats first[C], second[C];
        load_first(from, first);
        load_second(from, second);
        for (unsigned j = 0; j < C; ++j) {
            store_floats(to + j * kFloats, first[j]);
            store_floats(to + wide_columns + j * kFloats, second[j]);
        }
    }
    add_groups<C>(Panel<float>{p.numbers, wide, wide_columns, p.first, p.lines, p.bytes}, rows, a, a_row,
                  sums, ahead);
}

template <typename Left, typename Right>
void add_vectors(const Panel<Right>& p, std::int64_t vectors, std::int64_t rows, const Left* a,
                 std::int64_t a_row, float* sums, const char* ahead) {
    if constexpr (kMostVectors == 4) {
        if (vectors == 4) return add_columns<4>(p, rows, a, a_row, sums, ahead);
        if (vectors == 3) return add_columns<3>(p, rows, a, a_row, sums, ahead);
    }
    if (vectors == 2) return add_columns<2>(p, rows, a, a_row, sums, ahead);
    add_columns<1>(p, rows, a, a_row, sums, ahead);
}

// The chain's sums to `totals`, or added to those of the chains before it.
TANDEM_LANES void end_chain(const float* sums, std::int64_t rows, bool first, float* totals) {
    for (std::int64_t i = 0; i < rows * kMostPairColumns; i += kFloats) {
        const Floats sum = load_floats(sums + i);
        store_floats(totals + i, first ? sum : load_floats(totals + i) + sum);
    }
}

using Halves = std::uint16_t __attribute__((vector_size(2 * kFloats)));

// bfloat16, to nearest even; subnormal numbers stay.
TANDEM_LANES Halves rounded(const Floats& x) {
    const Words u = reinterpret_cast<Words>(x);
#if defined(__AVX512BF16__)
    // The instruction makes 0 of subnormal numbers.
    const LaneMask tiny = _mm512_testn_epi32_mask((__m512i)u, _mm512_set1_epi32(0x7f800000));
    if (__builtin_expect(tiny == 0, 1)) return (Halves)_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x));
#endif
    const Words nearest = (u + 0x7fffu + (u >> 16 & 1u)) >> 16, quiet = u >> 16 | 0x40u;
    return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? quiet : nearest, Halves);
}

TANDEM_LANES void store_here(float* to, const Floats& x) {
    store_floats(to, x);
}
TANDEM_LANES void store_here(std::uint16_t* to, const Floats& x) {
    const Halves halves = rounded(x);
    __builtin_memcpy(to, &halves, sizeof(halves));
}

// A tile of c: what the last chain of its sums begins with and what follows it. Null: nothing.
struct TileEnd {
    std::int64_t rows, width;  // width: at most kMostPairColumns
    const float *sums, *totals, *bias;
};

// Rows of the tile to `to` and every c_row numbers further.
template <typename Number>
void finish(const TileEnd& tile, Number* to, std::int64_t c_row) {
    const float *const totals = tile.totals, *const bias = tile.bias;
    const std::int64_t width = tile.width, whole = width / kFloats * kFloats;
    Floats last{};
    if (bias != nullptr)
        __builtin_memcpy(&last, bias + whole, static_cast<std::size_t>(width - whole) * sizeof(float));
    for (std::int64_t i = 0; i < tile.rows; ++i, to += c_row) {
        const float* const sums = tile.sums + i * kMostPairColumns;
        const auto end_at = [&](std::int64_t j, const Floats& more) {
            Floats sum = load_floats(sums + j);
            if (totals != nullptr) sum = load_floats(totals + i * kMostPairColumns + j) + sum;
            return bias != nullptr ? sum + more : sum;
        };
        for (std::int64_t j = 0; j < whole; j += kFloats)
            store_here(to + j, end_at(j, bias != nullptr ? load_floats(bias + j) : Floats{}));
        if (whole == width) continue;
        Number rest[kFloats];
        store_here(rest, end_at(whole, last));
        __builtin_memcpy(to + whole, rest, static_cast<std::size_t>(width - whole) * sizeof(Number));
    }
}

// Numbers of k in a unit of b: a pair, or one of float32.
template <typename Right>
constexpr std::int64_t kNumbers = 2 / kRows<Right>;

// Numbers of k in a panel, of few rows or many.
template <typename Left, typename Right>
std::int64_t panel_numbers(const PairProduct& p) {
    if (sizeof(Left) == sizeof(std::uint16_t)) return p.rows <= kFewRows ? kShortPanel : kLongPanel;
    const bool by_float = kRows<Right> == 2 || p.rows > kFewWideRows;
    return by_float ? kFloatPanel / p.columns / kTileNumbers * kTileNumbers : kShortPanel;
}

template <typename Left, typename Right>
void multiply(const PairProduct& p) {
    alignas(64) float sums[kMostPairRows * kMostPairColumns], totals[kMostPairRows * kMostPairColumns];
    constexpr std::int64_t kUnit = kNumbers<Right>, kTile = 16 * kUnit;
    const auto* const all = static_cast<const Right*>(p.b);
    const std::int64_t padded_units = (p.k + kTile - 1) / kTile * 16;
    const char* const end =
        reinterpret_cast<const char*>(all + (p.n + p.columns - 1) / p.columns * p.columns * padded_units);
    const std::int64_t groups = groups_of(p.rows), most = panel_numbers<Left, Right>(p);
    const std::int64_t lines = (kPairsAtOnce * kRows<Right> * p.columns * 4 / kLine + groups - 1) / groups;
    const std::int64_t distance =
        most < kLongPanel ? kShortAhead : smaller(kLongPanel / kUnit, padded_units) * p.columns * 4;
    for (std::int64_t column = 0; column < p.n; column += p.columns) {
        const std::int64_t width = smaller(p.n - column, p.columns);
        const Right* const block = all + column * padded_units;
        std::int64_t numbers = 0;
        for (std::int64_t k = 0; k < p.k; k += numbers) {
            numbers = smaller(most, smaller(p.k - k, p.chain - k % p.chain));
            const Right* const b = block + k / kUnit * p.columns;
            const char* ahead = reinterpret_cast<const char*>(b) + distance;
            const bool beyond = ahead >= end;
            if (beyond && p.next != nullptr) ahead = p.next + (ahead - end);
            const Panel<Right> panel{numbers,
                                     b,
                                     p.columns,
                                     k % p.chain == 0,
                                     !beyond || p.next != nullptr ? lines : 0,
                                     numbers / kUnit * p.columns * 4};
            add_vectors(panel, (width + kFloats - 1) / kFloats, p.rows, static_cast<const Left*>(p.a) + k,
                        p.k, sums, ahead);
            if (k + numbers == p.k) {
                const TileEnd tile{p.rows, width, sums, k < p.chain ? nullptr : totals,
                                   p.bias == nullptr ? nullptr : p.bias + column};
                p.c != nullptr ? finish(tile, p.c + column, p.c_row)
                               : finish(tile, p.rounded_c + column, p.c_row);
            } else if ((k + numbers) % p.chain == 0) {
                end_chain(sums, p.rows, k < p.chain, totals);
            }
        }
    }
}
