// delta_apply: an encoding from outside is checked whole, then written.
#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/ops/delta.h"

namespace tandem::ops {
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
    size_t count, gap_bytes;
};

Gaps check_gaps(ConstSpan encoded, size_t width, size_t elements) {
    std::uint32_t count = 0;
    if (encoded.bytes < sizeof count) {
        throw ProtocolError(fmt::format("delta: {} bytes of gaps have no count", encoded.bytes));
    }
    std::memcpy(&count, encoded.data, sizeof count);
    const size_t room = encoded.bytes - sizeof count;
    if (count > elements || count > room / (width + 1)) {
        throw ProtocolError(fmt::format("delta: {} changes of {} elements do not fit {} bytes of gaps", count,
                                        elements, encoded.bytes));
    }
    const std::byte* values = encoded.data + sizeof count;
    const Gaps result{values, values + count * width, count, room - count * width};
    size_t sum = 0, changes = 0;
    for (size_t i = 0; i < result.gap_bytes; ++i) {
        const auto gap = static_cast<std::uint8_t>(result.gaps[i]);
        sum += gap;
        changes += gap != 255 ? 1 : 0;
    }
    const bool ends = result.gap_bytes == 0 || result.gaps[result.gap_bytes - 1] != std::byte{255};
    if (changes != count || !ends) {
        throw ProtocolError(fmt::format("delta: gaps name {} changes, {} were announced", changes, count));
    }
    if (sum + changes > elements) {
        throw ProtocolError(fmt::format("delta: gaps end at element {} of {}", sum + changes, elements));
    }
    return result;
}

void check_bitmap(ConstSpan encoded, size_t width, size_t elements) {
    const size_t bitmap_bytes = (elements + 7) / 8;
    if (encoded.bytes < bitmap_bytes) {
        throw ProtocolError(
            fmt::format("delta: {} bytes hold no bitmap of {} elements", encoded.bytes, elements));
    }
    size_t changed = 0;
    for (size_t at = 0; at < bitmap_bytes; at += 8) {
        changed += static_cast<size_t>(__builtin_popcountll(load_bits(encoded.data, bitmap_bytes, at)));
    }
    if (elements % 8 != 0 && (static_cast<unsigned>(encoded.data[bitmap_bytes - 1]) >> (elements % 8)) != 0) {
        throw ProtocolError(fmt::format("delta: the bitmap marks elements past the last of {}", elements));
    }
    if (encoded.bytes - bitmap_bytes != changed * width) {
        throw ProtocolError(fmt::format("delta: {} bytes of values for {} changes of {} bytes",
                                        encoded.bytes - bitmap_bytes, changed, width));
    }
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

void delta_apply(DeltaCodec codec, ConstSpan encoded, size_t width, std::int64_t rows,
                 std::int64_t row_elements, std::byte* to, size_t stride) {
    require(width == 2 || width == 4, "delta_apply: elements of {} bytes", width);
    require(rows >= 0 && row_elements >= 0, "delta_apply: {} rows of {} elements", rows, row_elements);
    const auto row_size = static_cast<size_t>(row_elements);
    const size_t elements = static_cast<size_t>(rows) * row_size;
    require(rows <= 1 || stride >= row_size * width, "delta_apply: rows of {} bytes lie {} bytes apart",
            row_size * width, stride);
    switch (codec) {
        case DeltaCodec::none:
            if (encoded.bytes != 0) {
                throw ProtocolError(fmt::format("delta: {} bytes for no change", encoded.bytes));
            }
            return;
        case DeltaCodec::gaps:
        case DeltaCodec::bitmap:
            if (width == 2)
                return apply(codec, encoded, elements, Target<std::uint16_t>(to, row_size, stride));
            return apply(codec, encoded, elements, Target<std::uint32_t>(to, row_size, stride));
        case DeltaCodec::dense:
            if (encoded.bytes != elements * width) {
                throw ProtocolError(fmt::format("delta: {} bytes for {} elements of {} bytes", encoded.bytes,
                                                elements, width));
            }
            for (size_t row = 0; row < static_cast<size_t>(rows) && row_size > 0; ++row) {
                std::memcpy(to + row * stride, encoded.data + row * row_size * width, row_size * width);
            }
            return;
    }
    throw ProtocolError(fmt::format("delta: unknown codec {}", static_cast<std::uint32_t>(codec)));
}

}  // namespace tandem::ops
