// delta_encode: blocks that stay in L1 are cast, compared and hashed; the bitmap and the changed values grow
// in the target, and become gaps there if those are smaller.
#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/delta_kernels.h"
#include "common/ops/delta.h"

namespace tandem::ops {
namespace {

constexpr std::size_t kBlockBytes = 2 << 10;  // of new elements; whole bytes of the bitmap

std::size_t width_of(const DeltaSource& source) {
    const bool known = (source.from_dtype == DType::float32 || source.from_dtype == DType::bfloat16) &&
                       (source.to_dtype == DType::float32 || source.to_dtype == DType::bfloat16);
    require(known, "delta_encode: elements of {} as {}; float32 and bfloat16 are known",
            dtype_name(source.from_dtype), dtype_name(source.to_dtype));
    return dtype_size(source.to_dtype);
}

// The new elements, packed, a block at a time: where they lie already, or cast or gathered into `block`.
class Fresh {
  public:
    Fresh(const DeltaSource& source, const detail::CopyKernels& kernels)
        : source_(source), kernels_(kernels) {}

    const std::byte* next(std::size_t count, std::byte* block) {
        const auto row_elements = static_cast<std::size_t>(source_.row_elements);
        if (source_.from_dtype == source_.to_dtype && in_row_ + count <= row_elements) {
            const std::byte* at = here();
            advance(count);
            return at;
        }
        for (std::size_t done = 0; done < count;) {
            const std::size_t part = std::min(count - done, row_elements - in_row_);
            convert(block + done * dtype_size(source_.to_dtype), part);
            advance(part);
            done += part;
        }
        return block;
    }

  private:
    const std::byte* here() const {
        return source_.data + row_ * source_.stride + in_row_ * dtype_size(source_.from_dtype);
    }

    void advance(std::size_t count) {
        in_row_ += count;
        if (in_row_ < static_cast<std::size_t>(source_.row_elements)) return;
        in_row_ = 0;
        ++row_;
    }

    void convert(std::byte* to, std::size_t count) const {
        if (source_.from_dtype == source_.to_dtype) {
            std::memcpy(to, here(), count * dtype_size(source_.to_dtype));
        } else if (source_.to_dtype == DType::bfloat16) {
            kernels_.narrow(here(), to, static_cast<std::int64_t>(count));
        } else {
            kernels_.widen(here(), to, static_cast<std::int64_t>(count));
        }
    }

    DeltaSource source_;
    const detail::CopyKernels& kernels_;
    std::size_t row_ = 0, in_row_ = 0;
};

// The gaps of a bitmap: their number of bytes, or `limit` if there are as many or more.
std::size_t write_gaps(const std::byte* bitmap, std::size_t bitmap_bytes, std::byte* to, std::size_t limit) {
    std::size_t bytes = 0;
    std::size_t next = 0;  // the element behind the last change
    for (std::size_t at = 0; at < bitmap_bytes; at += 8) {
        std::uint64_t bits = 0;
        std::memcpy(&bits, bitmap + at, std::min<std::size_t>(8, bitmap_bytes - at));
        for (; bits != 0; bits &= bits - 1) {
            const std::size_t position = at * 8 + static_cast<std::size_t>(__builtin_ctzll(bits));
            std::size_t gap = position - next;
            if (bytes + gap / 255 + 1 >= limit) return limit;
            for (; gap >= 255; gap -= 255) to[bytes++] = std::byte{255};
            to[bytes++] = static_cast<std::byte>(gap);
            next = position + 1;
        }
    }
    return bytes;
}

// `to` holds the bitmap and `changed` values; makes the smallest encoding of it.
DeltaCodec finish(std::byte* to, std::size_t elements, std::size_t width, std::size_t changed,
                  std::size_t& bytes) {
    const std::size_t bitmap_bytes = (elements + 7) / 8;
    const std::size_t value_bytes = changed * width;
    bytes = 0;
    if (changed == 0) return DeltaCodec::none;
    bytes = std::min(bitmap_bytes + value_bytes, elements * width);
    const DeltaCodec other = bytes < elements * width ? DeltaCodec::bitmap : DeltaCodec::dense;
    // Gaps, count included, that take less than the bitmap: at most one change in 8 elements, so that much
    // room is free at the end.
    if (sizeof(std::uint32_t) + changed >= bitmap_bytes) return other;
    const std::size_t limit = bitmap_bytes - sizeof(std::uint32_t);
    std::byte* gaps = to + elements * width - limit;
    const std::size_t gap_bytes = write_gaps(to, bitmap_bytes, gaps, limit);
    if (gap_bytes >= limit) return other;
    const auto count = static_cast<std::uint32_t>(changed);
    std::memmove(to + sizeof count, to + bitmap_bytes, value_bytes);
    std::memcpy(to, &count, sizeof count);
    std::memmove(to + sizeof count + value_bytes, gaps, gap_bytes);
    bytes = sizeof count + value_bytes + gap_bytes;
    return DeltaCodec::gaps;
}

}  // namespace

std::size_t delta_capacity(std::int64_t elements, std::size_t width) {
    return static_cast<std::size_t>(elements) * width;
}

DeltaResult delta_encode(const DeltaSource& source, Span base, Span to) {
    const std::size_t width = width_of(source);
    require(source.rows >= 0 && source.row_elements >= 0, "delta_encode: {} rows of {} elements", source.rows,
            source.row_elements);
    const auto elements = static_cast<std::size_t>(source.rows * source.row_elements);
    require(elements <= UINT32_MAX, "delta_encode: {} elements are too many for one run", elements);
    require(base.bytes == elements * width, "delta_encode: {} bytes of base for {} elements of {}",
            base.bytes, elements, dtype_name(source.to_dtype));
    require(to.bytes >= delta_capacity(source.rows * source.row_elements, width),
            "delta_encode: room for {} bytes, {} may be needed", to.bytes, elements * width);

    const detail::CopyKernels& copy = detail::copy_kernels();
    const auto compare = width == 2 ? detail::delta_kernels().compare2 : detail::delta_kernels().compare4;
    alignas(64) std::array<std::byte, kBlockBytes> block;
    alignas(64) std::array<std::byte, kBlockBytes + detail::kValuesSlack> near_end;
    detail::HashState hash;
    copy.hash_begin(hash);
    Fresh fresh(source, copy);
    const std::size_t bitmap_bytes = (elements + 7) / 8;
    std::size_t changed = 0;
    bool fits = true;  // bitmap and values; else only the dense encoding does
    for (std::size_t at = 0; at < elements;) {
        const std::size_t count = std::min(kBlockBytes / width, elements - at);
        const std::byte* now = fresh.next(count, block.data());
        const std::size_t used = bitmap_bytes + changed * width;
        const bool roomy = fits && used + near_end.size() <= elements * width;
        std::byte* values = roomy ? to.data + used : near_end.data();
        std::array<std::byte, kBlockBytes / 16> unused;
        std::byte* bits = fits ? to.data + at / 8 : unused.data();
        const std::size_t more = compare({now, base.data + at * width, count, bits, values});
        changed += more;
        fits = fits && bitmap_bytes + changed * width <= elements * width;
        if (fits && !roomy) std::memcpy(to.data + used, near_end.data(), more * width);
        const std::size_t lines = count * width / 64 * 64;
        if (lines > 0) copy.hash_lines(hash, {now, 0, nullptr, 0, 1, lines});
        copy.hash_update(hash, now + lines, count * width - lines);
        at += count;
    }
    DeltaResult result;
    copy.hash_end(hash, result.content.low, result.content.high);
    result.changed = static_cast<std::int64_t>(changed);
    result.codec = fits ? finish(to.data, elements, width, changed, result.bytes) : DeltaCodec::dense;
    if (result.codec == DeltaCodec::dense) {
        std::memcpy(to.data, base.data, base.bytes);
        result.bytes = base.bytes;
        result.encoded = result.content;
    } else {
        result.encoded = checksum({to.data, result.bytes});
    }
    return result;
}

}  // namespace tandem::ops
