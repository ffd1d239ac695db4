// Part of kernels.inl, whose rules hold: keys and values as they lie in a cache.

// kWidth rows, a vector of each, become columns of to [.., kKeyTile].
TANDEM_INLINE void turn(const float* from, std::int64_t stride, float* to) {
    V r[kWidth];
    for (int i = 0; i < kWidth; ++i) r[i] = load(from + i * stride);
    transpose(r);
    for (int i = 0; i < kWidth; ++i) store(to + i * kKeyTile, r[i]);
}
// Two numbers are one of 32 bits until they are turned.
TANDEM_INLINE void turn(const std::uint16_t* from, std::int64_t stride, float* to) {
    V r[kWidth];
    for (int i = 0; i < kWidth; ++i) r[i] = *reinterpret_cast<const VUnaligned*>(from + i * stride);
    transpose(r);
    for (int i = 0; i < kWidth; ++i) {
        const U both = reinterpret_cast<U>(r[i]);
        store(to + 2 * i * kKeyTile, reinterpret_cast<V>(both << 16));
        store(to + (2 * i + 1) * kKeyTile, reinterpret_cast<V>(both & 0xffff0000U));
    }
}

// What comes next is asked for in as many parts as the loops below have steps.
constexpr std::int64_t kLineBytes = 64;

template <typename T>
TANDEM_INLINE void turn_keys(const KeyRows& keys, std::int64_t columns, std::int64_t head_dim, float* to) {
    constexpr std::int64_t kColumns = kWidth * 4 / sizeof(T);
    constexpr std::int64_t kLines = kColumns * sizeof(T) * kWidth / kLineBytes;
    const std::byte* const* const next = keys.looks_ahead ? keys.next_k : nullptr;
    for (std::int64_t key = 0; key < columns; key += kWidth) {
        const std::int64_t vector = key / kKeyRows, in_vector = key % kKeyRows;
        const T* const rows = reinterpret_cast<const T*>(keys.k[vector]) + in_vector * keys.stride;
        std::int64_t line = in_vector / kWidth * (head_dim / kColumns) * kLines;
        for (std::int64_t d = 0; d < head_dim; d += kColumns, line += kLines) {
            ask_ahead(next, vector, columns / kKeyRows, line, kLines);
            turn(rows + d, keys.stride, to + d * kKeyTile + key);
        }
    }
}

// Columns [d, d + C vectors) of rows [row, row + R) of acc, + p · values.
template <typename T, unsigned R, unsigned C>
TANDEM_INLINE void add_values(const ForwardTile& t, const KeyRows& keys, std::int64_t seen, std::int64_t row,
                              std::int64_t d) {
    constexpr std::int64_t kBytes = C * kWidth * sizeof(T);
    constexpr std::int64_t kLines = kBytes < kLineBytes ? 1 : kBytes / kLineBytes;
    const std::int64_t at = d * static_cast<std::int64_t>(sizeof(T));
    const bool asks = keys.looks_ahead && row == 0 && at % kLineBytes == 0;
    const std::byte* const* const next = asks ? keys.next_v : nullptr;
    const std::int64_t row_lines = t.width * static_cast<std::int64_t>(sizeof(T)) / kLineBytes;
    float* const acc = t.acc + row * t.width + d;
    const float* p = t.scores + row * kKeyTile;
    V sum[R][C];
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) sum[i][j] = load(acc + i * t.width + j * kWidth);
    }
    for (std::int64_t key = 0; key < seen; key += kKeyRows) {
        const T* value = reinterpret_cast<const T*>(keys.v[key / kKeyRows]) + d;
        const std::int64_t count = key + kKeyRows < seen ? kKeyRows : seen - key;
        for (std::int64_t k = 0; k < count; ++k, ++p, value += keys.stride) {
            ask_ahead(next, key / kKeyRows, whole_vectors(seen) / kKeyRows, k * row_lines + at / kLineBytes,
                      kLines);
            V right[C];
            for (unsigned j = 0; j < C; ++j) right[j] = widened(value + j * kWidth);
            for (unsigned i = 0; i < R; ++i) {
                const V left = splat(p[i * kKeyTile]);
                for (unsigned j = 0; j < C; ++j) sum[i][j] = fused(left, right[j], sum[i][j]);
            }
        }
    }
    for (unsigned i = 0; i < R; ++i) {
        for (unsigned j = 0; j < C; ++j) store(acc + i * t.width + j * kWidth, sum[i][j]);
    }
}

template <typename T, unsigned R, unsigned C>
void add_value_rows(const ForwardTile& t, const KeyRows& keys, std::int64_t seen, std::int64_t row,
                    std::int64_t d) {
    for (; row + R <= t.rows; row += R) add_values<T, R, C>(t, keys, seen, row, d);
    if constexpr (R > 1) {
        if (row < t.rows) add_value_rows<T, R - 1, C>(t, keys, seen, row, d);
    }
}

template <typename T>
void attend_rows(const ForwardTile& t, const KeyRows& keys, float* turned) {
    const std::int64_t seen = seen_keys(t), columns = whole_vectors(seen);
    turn_keys<T>(keys, columns, t.head_dim, turned);
    score(t, t.q, turned, t.scores);
    soften(t);
    std::int64_t d = 0;
    for (; d + kPanel * kWidth <= t.width; d += kPanel * kWidth)
        add_value_rows<T, kRows, kPanel>(t, keys, seen, 0, d);
    for (; d < t.width; d += kWidth) add_value_rows<T, kRows, 1>(t, keys, seen, 0, d);
}

void rows_tile(const ForwardTile& t, const KeyRows& keys, float* turned) {
    if (keys.element_bytes == 4) return attend_rows<float>(t, keys, turned);
    attend_rows<std::uint16_t>(t, keys, turned);
}
