// delta_encode: blocks that stay in L1 are cast, and compared and hashed in one pass; the bitmap and the changed
// values grow in the target, and become gaps there if those are smaller.
#include <algorithm>
#include <array>
#include <cstring>

#include "common/error.h"
#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/delta_writer.h"
#include "common/ops/delta.h"

namespace tandem::ops::cpu {
namespace {

// Bytes of new elements. Where most lines change, packing a block takes as long as reading it: of a small one it ends while
// the next is under way.
constexpr std::size_t kEncodedBlockBytes = 4 << 10, kChangedBlockBytes = 1 << 10;
static_assert(kEncodedBlockBytes / 2 <= detail::DeltaWriter::kBlockElements);

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

// Sets the bits of the elements from `first` on, a multiple of 8, that differ; returns how many. They are less
// than a line.
std::size_t compare_rest(const std::byte* fresh, const std::byte* base, std::size_t width, std::size_t first,
                         std::size_t count, std::byte* bitmap) {
    std::size_t changed = 0;
    for (std::size_t i = first; i < count; ++i) {
        const bool differs = std::memcmp(fresh + i * width, base + i * width, width) != 0;
        if (i % 8 == 0) bitmap[i / 8] = std::byte{0};
        bitmap[i / 8] |= std::byte{differs} << (i % 8);
        changed += differs ? 1 : 0;
    }
    return changed;
}

}  // namespace

DeltaResult delta_encode(Stream& stream, const DeltaSource& source, Span base, Span to) {
    stream.synchronize();
    const std::size_t width = dtype_size(source.to_dtype);
    const auto elements = static_cast<std::size_t>(source.rows * source.row_elements);
    const detail::CopyKernels& copy = detail::copy_kernels();
    alignas(64) std::array<std::byte, kEncodedBlockBytes> block;
    detail::HashState hash;
    copy.hash_begin(hash);
    Fresh fresh(source, copy);
    detail::DeltaWriter writer(to.data, elements, width);
    alignas(8) std::array<std::byte, detail::DeltaWriter::kBlockElements / 8> bits;
    const auto compare = width == 2 ? copy.compare2_lines : copy.compare4_lines;
    const auto renew = width == 2 ? copy.renew2_lines : copy.renew4_lines;
    std::size_t more = 0;  // changes in the last block: where there are none, lines are not written
    for (std::size_t at = 0; at < elements;) {
        const bool few = writer.expects_few() || more == 0;
        const std::size_t most = (few ? kEncodedBlockBytes : kChangedBlockBytes) / width;
        const std::size_t count = std::min(most, elements - at);
        const std::byte* now = fresh.next(count, block.data());
        std::byte* old = base.data + at * width;
        const std::size_t bytes = count * width, lines = bytes / 64, in_lines = lines * 64 / width;
        more = compare_rest(now, old, width, in_lines, count, bits.data());
        if (lines > 0) more += (few ? compare : renew)(hash, now, old, lines, bits.data());
        copy.hash_update(hash, now + 64 * lines, bytes - 64 * lines);
        if (!writer.add(now, old, count, bits.data(), more) && few) std::memcpy(old, now, bytes);
        std::memcpy(old + 64 * lines, now + 64 * lines, bytes - 64 * lines);
        at += count;
    }
    DeltaResult result;
    copy.hash_end(hash, result.content.low, result.content.high);
    result.changed = static_cast<std::int64_t>(writer.changed());
    result.codec = writer.finish(result.bytes);
    if (result.codec == DeltaCodec::dense) {
        std::memcpy(to.data, base.data, base.bytes);
        result.bytes = base.bytes;
        result.encoded = result.content;
    } else {
        result.encoded = checksum({to.data, result.bytes});
    }
    return result;
}

}  // namespace tandem::ops::cpu
