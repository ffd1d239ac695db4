// Part of kernels.inl, whose rules hold: rows are packed, and widened, for the products of tiles.

// What is left of a row behind the last whole vector goes four at a time: a small head is nothing else.
constexpr int kQuarter = 4;
using Q = float __attribute__((vector_size(kQuarter * 4)));
using QUnaligned __attribute__((vector_size(kQuarter * 4), aligned(4), may_alias)) = float;
using QBits = std::uint32_t __attribute__((vector_size(kQuarter * 4)));
using QHalf = std::uint16_t __attribute__((vector_size(kQuarter * 2)));
using QHalfUnaligned __attribute__((vector_size(kQuarter * 2), aligned(2), may_alias)) = std::uint16_t;

TANDEM_INLINE void pad(std::int64_t from, std::int64_t width, float* row) {
    std::int64_t d = from;
    for (; d % kQuarter != 0; ++d) row[d] = 0.0f;
    for (; d < width; d += kQuarter) *reinterpret_cast<QUnaligned*>(row + d) = Q{};
}

void pack_float(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t head_dim,
                std::int64_t width, float factor, float* to) {
    for (std::int64_t row = 0; row < rows; ++row, from += stride, to += width) {
        std::int64_t d = 0;
        for (; d + kWidth <= head_dim; d += kWidth) store(to + d, load(from + d) * factor);
        for (; d + kQuarter <= head_dim; d += kQuarter)
            *reinterpret_cast<QUnaligned*>(to + d) = *reinterpret_cast<const QUnaligned*>(from + d) * factor;
        for (; d < head_dim; ++d) to[d] = from[d] * factor;
        pad(d, width, to);
    }
}

void pack_bfloat16(const std::uint16_t* from, std::int64_t stride, std::int64_t rows, std::int64_t head_dim,
                   std::int64_t width, float factor, float* to) {
    for (std::int64_t row = 0; row < rows; ++row, from += stride, to += width) {
        std::int64_t d = 0;
        for (; d + kWidth <= head_dim; d += kWidth) store(to + d, widened(from + d) * factor);
        for (; d + kQuarter <= head_dim; d += kQuarter) {
            const QHalf half = *reinterpret_cast<const QHalfUnaligned*>(from + d);
            const QBits bits = __builtin_convertvector(half, QBits) << 16;
            *reinterpret_cast<QUnaligned*>(to + d) = reinterpret_cast<Q>(bits) * factor;
        }
        for (; d < head_dim; ++d) {
            const std::uint32_t bits = static_cast<std::uint32_t>(from[d]) << 16;
            to[d] = __builtin_bit_cast(float, bits) * factor;
        }
        pad(d, width, to);
    }
}
