#include "common/ops/delta_checks.h"

#include "common/error.h"

namespace tandem::ops::checks {

bool delta_is_plain(DeltaCodec codec, std::size_t bytes, std::size_t width, std::size_t elements) {
    switch (codec) {
        case DeltaCodec::none:
            if (bytes != 0) throw ProtocolError(fmt::format("delta: {} bytes for no change", bytes));
            return true;
        case DeltaCodec::dense:
            if (bytes != elements * width) {
                throw ProtocolError(
                    fmt::format("delta: {} bytes for {} elements of {} bytes", bytes, elements, width));
            }
            return true;
        case DeltaCodec::gaps:
        case DeltaCodec::bitmap:
            return false;
    }
    throw ProtocolError(fmt::format("delta: unknown codec {}", static_cast<std::uint32_t>(codec)));
}

void gaps_have_count(std::size_t bytes) {
    if (bytes < sizeof(std::uint32_t))
        throw ProtocolError(fmt::format("delta: {} bytes of gaps have no count", bytes));
}

GapsLayout gaps_layout(std::uint32_t count, std::size_t bytes, std::size_t width, std::size_t elements) {
    const std::size_t room = bytes - sizeof count;
    if (count > elements || count > room / (width + 1)) {
        throw ProtocolError(fmt::format("delta: {} changes of {} elements do not fit {} bytes of gaps", count,
                                        elements, bytes));
    }
    return {count, sizeof count + count * width, room - count * width};
}

void gaps_fit(const GapsLayout& layout, std::uint64_t sum, std::uint64_t changes, std::uint8_t last,
              std::size_t elements) {
    const bool ends = layout.gap_bytes == 0 || last != 255;
    if (changes != layout.count || !ends) {
        throw ProtocolError(
            fmt::format("delta: gaps name {} changes, {} were announced", changes, layout.count));
    }
    if (sum + changes > elements)
        throw ProtocolError(fmt::format("delta: gaps end at element {} of {}", sum + changes, elements));
}

std::size_t bitmap_bytes(std::size_t bytes, std::size_t elements) {
    const std::size_t result = (elements + 7) / 8;
    if (bytes < result)
        throw ProtocolError(fmt::format("delta: {} bytes hold no bitmap of {} elements", bytes, elements));
    return result;
}

void bitmap_fits(std::size_t bytes, std::uint64_t changes, std::uint8_t last, std::size_t width,
                 std::size_t elements) {
    if (elements % 8 != 0 && (static_cast<unsigned>(last) >> (elements % 8)) != 0)
        throw ProtocolError(fmt::format("delta: the bitmap marks elements past the last of {}", elements));
    const std::size_t values = bytes - (elements + 7) / 8;
    if (values != changes * width) {
        throw ProtocolError(
            fmt::format("delta: {} bytes of values for {} changes of {} bytes", values, changes, width));
    }
}

}  // namespace tandem::ops::checks
