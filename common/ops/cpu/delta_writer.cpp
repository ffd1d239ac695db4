// The growing encoding. In gaps there is at most one change in 8 elements, so their values, the bitmap's room
// and the gaps themselves never meet: 4 + changed < elements / 8, widths are at least 2.
#include "common/ops/cpu/delta_writer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tandem::ops::detail {
namespace {

constexpr std::size_t kCountBytes = sizeof(std::uint32_t);

// Writes values and base one by one: they are few.
template <typename T>
void move_few(const std::byte* fresh, std::byte* base, const std::uint16_t* positions, std::size_t count,
              std::byte* values) {
    for (std::size_t i = 0; i < count; ++i) {
        T value;
        std::memcpy(&value, fresh + positions[i] * sizeof(T), sizeof(T));
        std::memcpy(values + i * sizeof(T), &value, sizeof(T));
        std::memcpy(base + positions[i] * sizeof(T), &value, sizeof(T));
    }
}

}  // namespace

DeltaWriter::DeltaWriter(std::byte* to, std::size_t elements, std::size_t width)
    : kernels_(delta_kernels()),
      to_(to),
      elements_(elements),
      width_(width),
      dense_bytes_(elements * width),
      bitmap_bytes_((elements + 7) / 8),
      gaps_limit_(bitmap_bytes_ > kCountBytes ? bitmap_bytes_ - kCountBytes : 0),
      codec_(DeltaCodec::gaps) {
    if (gaps_limit_ == 0) gaps_to_bitmap();
}

bool DeltaWriter::add(const std::byte* fresh, std::byte* base, std::size_t count, const std::byte* bits,
                      std::size_t more) {
    if (codec_ == DeltaCodec::gaps && more > 0) {
        std::array<std::uint16_t, kBlockElements + kDeltaSlack> positions;
        if (more <= count / 8) kernels_.positions(bits, count, positions.data());
        if (more > count / 8 || !append_gaps(at_, positions.data(), more)) {
            gaps_to_bitmap();
        } else {
            std::byte* values = to_ + kCountBytes + changed_ * width_;
            (width_ == 2 ? move_few<std::uint16_t> : move_few<std::uint32_t>)(fresh, base, positions.data(),
                                                                              more, values);
        }
    }
    if (codec_ == DeltaCodec::bitmap) add_bitmap(fresh, count, bits, more);
    changed_ += more;
    at_ += count;
    return codec_ == DeltaCodec::gaps || more == 0;
}

// Returns false, and adds nothing, once gaps can no longer be the smallest encoding. One position at least.
bool DeltaWriter::append_gaps(std::size_t first, const std::uint16_t* positions, std::size_t count) {
    const std::size_t gap = first + positions[0] - next_, begun = gap_bytes_ + gap / 255 + 1;
    if (changed_ + count >= gaps_limit_ || begun >= gaps_limit_) return false;
    std::byte* gaps = to_ + dense_bytes_ - gaps_limit_;
    std::memset(gaps + gap_bytes_, 255, gap / 255);
    gaps[begun - 1] = static_cast<std::byte>(gap % 255);
    // A gap of n takes n / 255 + 1 bytes, and all of them together are less than a block.
    const std::size_t most = count - 1 + kBlockElements / 255;
    const bool fits = begun + most + kDeltaSlack <= gaps_limit_;
    std::array<std::byte, kBlockElements + kDeltaSlack> apart;
    const std::size_t more = kernels_.gaps(positions, count, fits ? gaps + begun : apart.data());
    if (begun + more >= gaps_limit_) return false;
    if (!fits) std::memcpy(gaps + begun, apart.data(), more);
    gap_bytes_ = begun + more;
    next_ = first + positions[count - 1] + std::size_t{1};
    return true;
}

void DeltaWriter::add_bitmap(const std::byte* fresh, std::size_t count, const std::byte* bits,
                             std::size_t more) {
    const std::size_t used = bitmap_bytes_ + changed_ * width_;
    if (used + more * width_ > dense_bytes_) {
        codec_ = DeltaCodec::dense;
        return;
    }
    std::memcpy(to_ + at_ / 8, bits, (count + 7) / 8);
    if (more == 0) return;
    const auto pack = width_ == 2 ? kernels_.pack2 : kernels_.pack4;
    if (used + more * width_ + kDeltaSlack <= dense_bytes_) {
        pack(fresh, bits, count, to_ + used);
    } else {
        alignas(64) std::array<std::byte, kBlockElements * 4 + kDeltaSlack> values;
        pack(fresh, bits, count, values.data());
        std::memcpy(to_ + used, values.data(), more * width_);
    }
}

void DeltaWriter::gaps_to_bitmap() {
    codec_ = DeltaCodec::bitmap;
    if (at_ == 0) return;
    std::memmove(to_ + bitmap_bytes_, to_ + kCountBytes, changed_ * width_);
    std::memset(to_, 0, at_ / 8);
    const std::byte* gaps = to_ + dense_bytes_ - gaps_limit_;
    std::size_t element = 0;
    for (std::size_t i = 0; i < gap_bytes_; ++i) {
        element += static_cast<std::size_t>(gaps[i]);
        if (gaps[i] == std::byte{255}) continue;
        to_[element / 8] |= std::byte{1} << (element % 8);
        ++element;
    }
}

// Gaps may be smaller after all, when many changes at the start were followed by few.
bool DeltaWriter::bitmap_to_gaps() {
    gap_bytes_ = next_ = 0;
    const std::size_t changed = changed_;
    changed_ = 0;
    std::array<std::uint16_t, kBlockElements + kDeltaSlack> positions;
    bool fits = changed < gaps_limit_;
    for (std::size_t at = 0; fits && at < elements_; at += kBlockElements) {
        const std::size_t count = std::min(kBlockElements, elements_ - at);
        const std::size_t marked = kernels_.positions(to_ + at / 8, count, positions.data());
        fits = marked == 0 || append_gaps(at, positions.data(), marked);
        changed_ += marked;
    }
    changed_ = changed;
    if (fits) std::memmove(to_ + kCountBytes, to_ + bitmap_bytes_, changed_ * width_);
    return fits;
}

DeltaCodec DeltaWriter::finish(std::size_t& bytes) {
    bytes = 0;
    if (changed_ == 0) return DeltaCodec::none;
    const std::size_t value_bytes = changed_ * width_;
    if (codec_ == DeltaCodec::bitmap && bitmap_to_gaps()) codec_ = DeltaCodec::gaps;
    if (codec_ == DeltaCodec::gaps) {
        const auto count = static_cast<std::uint32_t>(changed_);
        std::memcpy(to_, &count, kCountBytes);
        std::memmove(to_ + kCountBytes + value_bytes, to_ + dense_bytes_ - gaps_limit_, gap_bytes_);
        bytes = kCountBytes + value_bytes + gap_bytes_;
    } else if (codec_ == DeltaCodec::bitmap) {
        bytes = bitmap_bytes_ + value_bytes;
        if (bytes >= dense_bytes_) codec_ = DeltaCodec::dense;
    }
    return codec_;
}

}  // namespace tandem::ops::detail
