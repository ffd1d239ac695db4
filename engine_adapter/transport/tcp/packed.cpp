#include "engine_adapter/transport/tcp/packed.h"

#include <algorithm>
#include <array>

#include "common/align.h"
#include "common/error.h"

namespace tandem::engine {
namespace {

// A shorter piece is cheaper to copy than to list.
constexpr std::uint64_t kCopiedBelow = 1024;

template <typename Item, typename Bytes>
std::vector<std::uint64_t> offsets_of(std::span<const Item> items, const Bytes& bytes_of) {
    std::vector<std::uint64_t> offsets{0};
    offsets.reserve(items.size() + 1);
    for (const Item& item : items) {
        std::uint64_t end = 0;
        if (__builtin_add_overflow(offsets.back(), bytes_of(item), &end) || end > UINT64_MAX - kPackedAlign)
            throw ProtocolError("a bucket of more bytes than there are");
        offsets.push_back(round_up(end, kPackedAlign));
    }
    return offsets;
}

}  // namespace

std::vector<std::uint64_t> packed_offsets(std::span<const Transfer> bucket) {
    return offsets_of(bucket,
                      [](const Transfer& t) { return t.rows * t.row_elements * dtype_size(t.from_dtype); });
}

std::vector<std::uint64_t> packed_offsets(std::span<const DeltaEntry> entries) {
    return offsets_of(entries, [](const DeltaEntry& entry) { return entry.bytes; });
}

void PackedBucket::add(const std::byte* from, std::uint64_t rows, std::uint64_t row_bytes,
                       std::uint64_t stride) {
    const std::uint64_t bytes = rows * row_bytes;
    if (bytes == 0) return;
    const bool together = rows == 1 || stride == row_bytes;
    runs_.push_back({from, together ? 1 : rows, together ? bytes : row_bytes, stride, bytes_});
    bytes_ = round_up(bytes_ + bytes, kPackedAlign);
}

void PackedBucket::pieces(std::uint64_t begin, std::uint64_t end, std::vector<iovec>& list,
                          std::vector<std::byte>& scratch) const {
    static constexpr std::array<std::byte, kPackedAlign> kZeros{};
    require(begin <= end && end <= bytes_, "bytes {} to {} of a bucket of {}", begin, end, bytes_);
    list.clear();
    scratch.clear();
    scratch.reserve(end - begin);  // pieces point into it
    const auto put = [&](const std::byte* from, std::uint64_t bytes) {
        const std::byte* piece = from;
        if (bytes < kCopiedBelow) {
            piece = scratch.data() + scratch.size();
            scratch.insert(scratch.end(), from, from + bytes);
        }
        if (!list.empty() &&
            static_cast<const std::byte*>(list.back().iov_base) + list.back().iov_len == piece) {
            list.back().iov_len += bytes;
        } else {
            list.push_back({const_cast<std::byte*>(piece), bytes});
        }
    };
    auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                                [](std::uint64_t at, const Run& one) { return at < one.at; });
    if (run != runs_.begin()) --run;
    for (std::uint64_t at = begin; at < end;) {
        if (at < run->end()) {
            const std::uint64_t row = (at - run->at) / run->row_bytes;
            const std::uint64_t column = (at - run->at) % run->row_bytes;
            const std::uint64_t bytes = std::min(run->row_bytes - column, end - at);
            put(run->from + row * run->stride + column, bytes);
            at += bytes;
            continue;
        }
        const std::uint64_t next = run + 1 == runs_.end() ? bytes_ : (run + 1)->at;
        if (const std::uint64_t gap = std::min(next, end) - at; gap > 0) {
            put(kZeros.data(), gap);
            at += gap;
        }
        if (run + 1 != runs_.end()) ++run;
    }
}

}  // namespace tandem::engine
