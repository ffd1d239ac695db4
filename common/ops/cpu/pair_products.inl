// The kernel of pair_products.h over the lanes of attention/pairs.h. Compiled without contraction.
//
// Nothing here may name std: an inline function compiled for AVX-512 must not become the program's only copy.

constexpr std::int64_t kPanelPairs = kPairChain / 2;  // of k: 16 KB of b
constexpr std::int64_t kGroupRows = 6;                // times 4 vectors: the accumulators that registers hold
constexpr std::int64_t kPairsAtOnce = 4;              // between two looks ahead
constexpr std::int64_t kAhead = 32 * 1024;            // bytes from what is multiplied to what is asked for
constexpr std::int64_t kLine = 64;                    // bytes of memory that come at once
constexpr std::int64_t kVectors = kMostPairColumns / kFloats;

// Asks for `lines` of memory from there on; returns what follows them.
TANDEM_LANES const char* look_ahead(const char* at, std::int64_t lines) {
    for (std::int64_t i = 0; i < lines; ++i) __builtin_prefetch(at + i * kLine, 0, 2);
    return at + lines * kLine;
}

// One pair of k: sum[i][j] += a's row i · b's vector j.
template <unsigned R, unsigned C>
TANDEM_LANES void add_pair(Floats (&sum)[R][C], const std::uint16_t* a, std::int64_t a_row,
                           const std::uint32_t* b) {
    Words right[C];
    for (unsigned j = 0; j < C; ++j) right[j] = load_pairs(b + j * kFloats);
    for (unsigned i = 0; i < R; ++i) {
        const Words left = all_lanes_pair(a + i * a_row);
        for (unsigned j = 0; j < C; ++j) sum[i][j] = dot_pairs(left, right[j], sum[i][j]);
    }
}

std::int64_t groups_of(std::int64_t rows) {
    return (rows + kGroupRows - 1) / kGroupRows;
}

// A panel: some columns of b (C vectors), some numbers of k.
struct Panel {
    std::int64_t numbers;    // of k
    const std::uint32_t* b;  // pairs of k, each `columns` words after the one before
    std::int64_t columns;
    bool first;          // of a chain: the sums begin at 0
    std::int64_t lines;  // that each group of rows asks for every kPairsAtOnce pairs
};

// sums[R, kMostPairColumns] of R rows of a, and the panel. (Sums that were set to 0 and then loaded would go through
// memory.)
template <unsigned R, unsigned C>
TANDEM_LANES void add_panel(const Panel& p, const std::uint16_t* a, std::int64_t a_row, float* sums,
                            const char* ahead) {
    Floats sum[R][C];
    for (unsigned i = 0; i < R; ++i)
        for (unsigned j = 0; j < C; ++j)
            sum[i][j] = p.first ? Floats{} : load_floats(sums + i * kMostPairColumns + j * kFloats);
    const std::int64_t pairs = p.numbers / 2;
    std::int64_t k = 0;
    for (; k + kPairsAtOnce <= pairs; k += kPairsAtOnce) {
        ahead = look_ahead(ahead, p.lines);
        for (std::int64_t i = k; i < k + kPairsAtOnce; ++i)
            add_pair<R, C>(sum, a + 2 * i, a_row, p.b + i * p.columns);
    }
    for (; k < pairs; ++k) add_pair<R, C>(sum, a + 2 * k, a_row, p.b + k * p.columns);
    if (p.numbers % 2 != 0) {  // the last number of a row has no second
        std::uint16_t last[R][2] = {};
        for (unsigned i = 0; i < R; ++i) last[i][0] = a[i * a_row + 2 * pairs];
        add_pair<R, C>(sum, last[0], 2, p.b + pairs * p.columns);
    }
    for (unsigned i = 0; i < R; ++i)
        for (unsigned j = 0; j < C; ++j) store_floats(sums + i * kMostPairColumns + j * kFloats, sum[i][j]);
}

template <unsigned C>
void add_rows(const Panel& p, std::int64_t rows, const std::uint16_t* a, std::int64_t a_row, float* sums,
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
template <unsigned C>
void add_groups(const Panel& p, std::int64_t rows, const std::uint16_t* a, std::int64_t a_row, float* sums,
                const char* ahead) {
    const std::int64_t groups = groups_of(rows);
    for (std::int64_t group = 0; group < groups; ++group) {
        const std::int64_t from = rows * group / groups, to = rows * (group + 1) / groups;
        add_rows<C>(p, to - from, a + from * a_row, a_row, sums + from * kMostPairColumns,
                    ahead + group * p.lines * kPanelPairs / kPairsAtOnce * kLine);
    }
}

void add_vectors(const Panel& p, std::int64_t vectors, std::int64_t rows, const std::uint16_t* a,
                 std::int64_t a_row, float* sums, const char* ahead) {
    switch (vectors) {
        case 4:
            return add_groups<4>(p, rows, a, a_row, sums, ahead);
        case 3:
            return add_groups<3>(p, rows, a, a_row, sums, ahead);
        case 2:
            return add_groups<2>(p, rows, a, a_row, sums, ahead);
        default:
            return add_groups<1>(p, rows, a, a_row, sums, ahead);
    }
}

// The chain's sums to c, or added to those of the chains before it.
TANDEM_LANES void end_chain(const float* sums, std::int64_t count, bool first, float* c) {
    std::int64_t at = 0;
    for (; at + kFloats <= count; at += kFloats) {
        const Floats sum = load_floats(sums + at);
        store_floats(c + at, first ? sum : load_floats(c + at) + sum);
    }
    for (; at < count; ++at) c[at] = first ? sums[at] : c[at] + sums[at];
}

void multiply(const PairProduct& p) {
    alignas(64) float sums[kMostPairRows * kMostPairColumns];
    const std::int64_t padded_pairs = (p.k + 31) / 32 * 16;
    const char* const end =
        reinterpret_cast<const char*>(p.b + (p.n + p.columns - 1) / p.columns * p.columns * padded_pairs);
    const std::int64_t groups = groups_of(p.rows);
    const std::int64_t lines = (kPairsAtOnce * kVectors + groups - 1) / groups;
    for (std::int64_t column = 0; column < p.n; column += p.columns) {
        const std::int64_t width = p.n - column < p.columns ? p.n - column : p.columns;
        const std::uint32_t* const block = p.b + column * padded_pairs;
        for (std::int64_t k = 0; k < p.k; k += 2 * kPanelPairs) {
            const std::int64_t numbers = p.k - k < 2 * kPanelPairs ? p.k - k : 2 * kPanelPairs;
            const std::uint32_t* const b = block + k / 2 * p.columns;
            const char* const ahead = reinterpret_cast<const char*>(b) + kAhead;
            const Panel panel{numbers, b, p.columns, k % p.chain == 0, ahead < end ? lines : 0};
            add_vectors(panel, (width + kFloats - 1) / kFloats, p.rows, p.a + k, p.k, sums, ahead);
            if ((k + numbers) % p.chain != 0 && k + numbers < p.k) continue;
            for (std::int64_t i = 0; i < p.rows; ++i)
                end_chain(sums + i * kMostPairColumns, width, k < p.chain, p.c + i * p.n + column);
        }
    }
}
