// delta_apply: an encoding from outside is checked whole, then written.
#include "common/ops/cpu/delta_apply.h"

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/ops/cpu/delta_kernels.h"
#include "common/ops/delta_checks.h"

namespace tandem::ops {
namespace {

using std::size_t;

std::uint64_t load_bits(ConstSpan bitmap, size_t at) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bitmap.data + at, std::min<size_t>(8, bitmap.bytes - at));
    return bits;
}

// Elements in strided rows, numbered row after row, and the values for some of them, in order.
template <typename T>
class Writer {
  public:
    Writer(const detail::DeltaTarget& target, ConstSpan values)
        : row_(target.to),
          row_elements_(target.row_elements),
          stride_(target.stride),
          left_(target.rows * target.row_elements),
          value_(values.data),
          values_left_(values.bytes / sizeof(T)) {}

    // Steps over `unchanged` elements and writes the next value to the one behind them.
    void put(size_t unchanged) {
        require_left(unchanged < left_ && values_left_ > 0);
        step(unchanged);
        --left_;
        --values_left_;
        std::memcpy(row_ + column_ * sizeof(T), value_, sizeof(T));
        ++column_;
        value_ += sizeof(T);
    }

    // Steps over `unchanged` elements and writes those that words of 64 bits mark, as long as the words lie in
    // the row and there are values enough for any. Returns the words done. Each word has an element to mark.
    size_t put_words(size_t unchanged, const std::byte* bitmap, size_t words) {
        require_left(unchanged < left_);
        step(unchanged);
        words = std::min({words, left_ / 64, (row_elements_ - column_) / 64});
        const auto unpack =
            sizeof(T) == 2 ? detail::delta_kernels().unpack2 : detail::delta_kernels().unpack4;
        const auto done = unpack(bitmap, words, value_, values_left_, row_ + column_ * sizeof(T));
        left_ -= 64 * done.words;
        column_ += 64 * done.words;
        value_ += done.values * sizeof(T);
        values_left_ -= done.values;
        return done.words;
    }

  private:
    static void require_left(bool left) {
        if (!left)
            throw ProtocolError(
                "delta: the marks name more than there is: the encoding changed while it was applied");
    }

    void step(size_t elements) {
        left_ -= elements;
        column_ += elements;
        if (column_ < row_elements_) return;
        row_ += column_ / row_elements_ * stride_;
        column_ %= row_elements_;
    }

    std::byte* row_;
    size_t row_elements_, stride_;
    size_t left_;        // elements behind the last one written
    size_t column_ = 0;  // in the current row, or past its end
    const std::byte* value_;
    size_t values_left_;
};

detail::DeltaParts check_gaps(ConstSpan encoded, size_t width, size_t elements) {
    checks::gaps_have_count(encoded.bytes);
    std::uint32_t count = 0;
    std::memcpy(&count, encoded.data, sizeof count);
    const checks::GapsLayout layout = checks::gaps_layout(count, encoded.bytes, width, elements);
    const ConstSpan gaps = encoded.subspan(layout.gaps_at, layout.gap_bytes);
    size_t sum = 0, changes = 0;
    std::uint8_t gap = 0;
    for (size_t i = 0; i < gaps.bytes; ++i) {
        gap = static_cast<std::uint8_t>(gaps.data[i]);
        sum += gap;
        changes += gap != 255 ? 1 : 0;
    }
    checks::gaps_fit(layout, sum, changes, gap, elements);
    return {gaps, encoded.subspan(sizeof count, layout.gaps_at - sizeof count)};
}

detail::DeltaParts check_bitmap(ConstSpan encoded, size_t width, size_t elements) {
    const ConstSpan bitmap = encoded.subspan(0, checks::bitmap_bytes(encoded.bytes, elements));
    size_t changed = 0;
    for (size_t at = 0; at < bitmap.bytes; at += 8)
        changed += static_cast<size_t>(__builtin_popcountll(load_bits(bitmap, at)));
    const std::uint8_t last =
        bitmap.bytes == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(bitmap.data[bitmap.bytes - 1]);
    checks::bitmap_fits(encoded.bytes, changed, last, width, elements);
    return {bitmap, encoded.subspan(bitmap.bytes, encoded.bytes - bitmap.bytes)};
}

// Takes what Writer takes: the numbers of the elements instead.
class Positions {
  public:
    Positions(std::int32_t first, std::span<std::int32_t> to) : next_(first), to_(to) {}

    void put(size_t unchanged) {
        next_ += static_cast<std::int32_t>(unchanged);
        to_[count_++] = next_++;
    }
    size_t put_words(size_t unchanged, const std::byte*, size_t) {
        next_ += static_cast<std::int32_t>(unchanged);
        return 0;
    }

  private:
    std::int32_t next_;
    std::span<std::int32_t> to_;
    size_t count_ = 0;
};

template <typename To>
void put_gaps(ConstSpan gaps, To to) {
    size_t unchanged = 0;
    for (size_t i = 0; i < gaps.bytes; ++i) {
        const auto gap = static_cast<std::uint8_t>(gaps.data[i]);
        unchanged += gap;
        if (gap == 255) continue;
        to.put(unchanged);
        unchanged = 0;
    }
}

template <typename To>
void put_bitmap(ConstSpan bitmap, To to) {
    size_t unchanged = 0;
    for (size_t at = 0; at < bitmap.bytes;) {
        const size_t words = to.put_words(unchanged, bitmap.data + at, (bitmap.bytes - at) / 8);
        at += 8 * words;
        unchanged = 0;
        if (words > 0) continue;
        size_t next = 0;  // the element behind the last change, in the word
        for (std::uint64_t bits = load_bits(bitmap, at); bits != 0; bits &= bits - 1) {
            const auto position = static_cast<size_t>(__builtin_ctzll(bits));
            to.put(position - next);
            next = position + 1;
        }
        unchanged = 64 - next;
        at += 8;
    }
}

template <typename T>
void write_values(DeltaCodec codec, const detail::DeltaParts& parts, const detail::DeltaTarget& target) {
    Writer<T> to(target, parts.values);
    codec == DeltaCodec::gaps ? put_gaps(parts.marks, to) : put_bitmap(parts.marks, to);
}

}  // namespace

detail::DeltaParts detail::check_delta(DeltaCodec codec, ConstSpan encoded, size_t width, size_t elements) {
    return codec == DeltaCodec::gaps ? check_gaps(encoded, width, elements)
                                     : check_bitmap(encoded, width, elements);
}

void detail::write_delta(DeltaCodec codec, const DeltaParts& parts, const DeltaTarget& target) {
    (target.width == 2 ? write_values<std::uint16_t> : write_values<std::uint32_t>)(codec, parts, target);
}

ConstSpan delta_positions(DeltaCodec codec, ConstSpan encoded, size_t width, std::int64_t elements,
                          std::int32_t first, std::span<std::int32_t> positions) {
    const detail::DeltaParts parts =
        detail::check_delta(codec, encoded, width, static_cast<size_t>(elements));
    if (parts.values.bytes != positions.size() * width) {
        throw ProtocolError(fmt::format("delta: {} changes, and room for the positions of {}",
                                        parts.values.bytes / width, positions.size()));
    }
    Positions to(first, positions);
    codec == DeltaCodec::gaps ? put_gaps(parts.marks, to) : put_bitmap(parts.marks, to);
    return parts.values;
}

void cpu::delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, size_t width, std::int64_t rows,
                      std::int64_t row_elements, std::byte* to, size_t stride) {
    stream.synchronize();
    const auto row_size = static_cast<size_t>(row_elements);
    const size_t elements = static_cast<size_t>(rows) * row_size;
    if (!checks::delta_is_plain(codec, encoded.bytes, width, elements)) {
        const detail::DeltaParts parts = detail::check_delta(codec, encoded, width, elements);
        return detail::write_delta(codec, parts, {to, width, static_cast<size_t>(rows), row_size, stride});
    }
    if (codec == DeltaCodec::none) return;
    for (size_t row = 0; row < static_cast<size_t>(rows) && row_size > 0; ++row)
        std::memcpy(to + row * stride, encoded.data + row * row_size * width, row_size * width);
}

}  // namespace tandem::ops
