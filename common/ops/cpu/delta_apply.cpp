// delta_apply: an encoding from outside is checked whole, then written.
#include <algorithm>
#include <cstring>

#include "common/ops/delta_checks.h"

namespace tandem::ops::cpu {
namespace {

using std::size_t;

std::uint64_t load_bits(const std::byte* bitmap, size_t bytes, size_t at) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bitmap + at, std::min<size_t>(8, bytes - at));
    return bits;
}

// Elements in strided rows, numbered row after row.
template <typename T>
class Target {
  public:
    Target(std::byte* to, size_t row_elements, size_t stride)
        : row_(to), row_elements_(row_elements), stride_(stride) {}

    // Element `column_` of the current row, and on to the next one.
    void put(const std::byte* value) {
        if (column_ >= row_elements_) wrap();
        std::memcpy(row_ + column_ * sizeof(T), value, sizeof(T));
        ++column_;
    }
    void skip(size_t elements) { column_ += elements; }

  private:
    void wrap() {
        row_ += column_ / row_elements_ * stride_;
        column_ %= row_elements_;
    }

    std::byte* row_;
    size_t row_elements_, stride_;
    size_t column_ = 0;
};

struct Gaps {
    const std::byte* values;
    const std::byte* gaps;
    size_t gap_bytes;
};

Gaps check_gaps(ConstSpan encoded, size_t width, size_t elements) {
    checks::gaps_have_count(encoded.bytes);
    std::uint32_t count = 0;
    std::memcpy(&count, encoded.data, sizeof count);
    const checks::GapsLayout layout = checks::gaps_layout(count, encoded.bytes, width, elements);
    const Gaps result{encoded.data + sizeof count, encoded.data + layout.gaps_at, layout.gap_bytes};
    size_t sum = 0, changes = 0;
    std::uint8_t gap = 0;
    for (size_t i = 0; i < result.gap_bytes; ++i) {
        gap = static_cast<std::uint8_t>(result.gaps[i]);
        sum += gap;
        changes += gap != 255 ? 1 : 0;
    }
    checks::gaps_fit(layout, sum, changes, gap, elements);
    return result;
}

void check_bitmap(ConstSpan encoded, size_t width, size_t elements) {
    const size_t bitmap_bytes = checks::bitmap_bytes(encoded.bytes, elements);
    size_t changed = 0;
    for (size_t at = 0; at < bitmap_bytes; at += 8) {
        changed += static_cast<size_t>(__builtin_popcountll(load_bits(encoded.data, bitmap_bytes, at)));
    }
    const std::uint8_t last =
        bitmap_bytes == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(encoded.data[bitmap_bytes - 1]);
    checks::bitmap_fits(encoded.bytes, changed, last, width, elements);
}

template <typename T>
void put_gaps(const Gaps& from, Target<T> to) {
    const std::byte* value = from.values;
    for (size_t i = 0; i < from.gap_bytes; ++i) {
        const auto gap = static_cast<std::uint8_t>(from.gaps[i]);
        to.skip(gap);
        if (gap == 255) continue;
        to.put(value);
        value += sizeof(T);
    }
}

template <typename T>
void put_bitmap(const std::byte* bitmap, size_t elements, Target<T> to) {
    const size_t bitmap_bytes = (elements + 7) / 8;
    const std::byte* value = bitmap + bitmap_bytes;
    size_t next = 0;  // the element behind the last change
    for (size_t at = 0; at < bitmap_bytes; at += 8) {
        for (std::uint64_t bits = load_bits(bitmap, bitmap_bytes, at); bits != 0; bits &= bits - 1) {
            const size_t position = at * 8 + static_cast<size_t>(__builtin_ctzll(bits));
            to.skip(position - next);
            to.put(value);
            value += sizeof(T);
            next = position + 1;
        }
    }
}

template <typename T>
void apply(DeltaCodec codec, ConstSpan encoded, size_t elements, Target<T> to) {
    if (codec == DeltaCodec::gaps) {
        put_gaps(check_gaps(encoded, sizeof(T), elements), to);
    } else {
        check_bitmap(encoded, sizeof(T), elements);
        put_bitmap(encoded.data, elements, to);
    }
}

}  // namespace

void delta_apply(Stream& stream, DeltaCodec codec, ConstSpan encoded, size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, size_t stride) {
    stream.synchronize();
    const auto row_size = static_cast<size_t>(row_elements);
    const size_t elements = static_cast<size_t>(rows) * row_size;
    if (!checks::delta_is_plain(codec, encoded.bytes, width, elements)) {
        if (width == 2) return apply(codec, encoded, elements, Target<std::uint16_t>(to, row_size, stride));
        return apply(codec, encoded, elements, Target<std::uint32_t>(to, row_size, stride));
    }
    if (codec == DeltaCodec::none) return;
    for (size_t row = 0; row < static_cast<size_t>(rows) && row_size > 0; ++row)
        std::memcpy(to + row * stride, encoded.data + row * row_size * width, row_size * width);
}

}  // namespace tandem::ops::cpu
