// Copies with the checksum fused in. Whole lines go through kernels that copy and hash in one loop; rows that
// are cast or ragged are put together in a small block first.
#include "common/ops/batched_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "common/ops/cpu/copy_kernels.h"
#include "common/ops/cpu/half.h"
#include "common/ops/cpu/rows.h"

namespace tandem::ops::cpu {
namespace {

// Bytes of the target that are cast or gathered at a time: they should stay in L1 with their source.
constexpr std::size_t kBlockBytes = 2 << 10;

enum class Write { none, store, stream };

// One item while it is copied, with the state of its hash.
class Copy {
  public:
    Copy(const CopyItem& item, Write write, bool hashes)
        : kernels_(detail::copy_kernels(rows_lie(item))),
          item_(item),
          write_(write),
          hashes_(hashes),
          ahead_(item.from.bytes > 0 ? item.from.bytes : 1, item.from_stride, item.rows) {
        if (hashes_) kernels_.hash_begin(hash_);
    }

    void run() {
        const std::size_t bytes = item_.to.bytes;
        if (bytes == 0 || item_.rows == 0) return;
        const bool cast = item_.from_dtype != item_.to_dtype;
        const auto rows = static_cast<std::size_t>(item_.rows);
        const bool to_packed = rows == 1 || write_ == Write::none || item_.to_stride == bytes;
        const bool from_packed = rows_lie(item_) == detail::RowsLie::end_to_end;
        const bool once = lines_are_read_once();
        if (!cast && from_packed && to_packed && once)
            return put(item_.from.data, item_.to.data, rows * bytes);
        if (!cast && hashes_ && bytes % 64 == 0 && once)
            return lines(item_.from.data, item_.to.data, item_.rows, bytes);
        if (to_packed && (cast || bytes % 64 != 0 || !once)) return gather(0, rows * bytes, item_.to.data);
        for (std::size_t row = 0; row < rows; ++row) {
            std::byte* to = item_.to.data + (write_ == Write::none ? 0 : row * item_.to_stride);
            if (cast || hashes_) {
                gather(row * bytes, bytes, to);
            } else {
                put(item_.from.data + row * item_.from_stride, to, bytes);
            }
        }
    }

    Checksum digest() const {
        Checksum result;
        kernels_.hash_end(hash_, result.low, result.high);
        return result;
    }

  private:
    static detail::RowsLie rows_lie(const CopyItem& item) {
        return detail::rows_lie(item.from.bytes, item.from_stride, item.rows);
    }

    // The source may be a peer's memory, which it writes meanwhile: what is hashed must be what is written.
    // Where streamed lines do not start where those of the target do, they are hashed and written apart: that
    // takes a block of our own.
    bool lines_are_read_once() const {
        if (!hashes_ || write_ != Write::stream) return true;
        const auto start = reinterpret_cast<std::uintptr_t>(item_.to.data);
        return start % 64 == 0 && (item_.rows == 1 || item_.to_stride % 64 == 0);
    }

    void lines(const std::byte* from, std::byte* to, std::int64_t rows, std::size_t bytes) {
        const detail::CopyLines all{from, item_.from_stride, to, item_.to_stride, rows, bytes};
        if (write_ == Write::stream) {
            kernels_.hash_stream_lines(hash_, all);
        } else if (write_ == Write::store && (from != to || rows > 1)) {
            kernels_.hash_store_lines(hash_, all);
        } else {
            kernels_.hash_lines(hash_, all);
        }
    }

    // A packed range, hashed and written. The source is read once: beyond whole lines it is this thread's, or
    // short.
    void put(const std::byte* from, std::byte* to, std::size_t bytes) {
        std::size_t whole = 0;
        std::array<std::byte, 64> rest;
        if (hashes_) {
            if (hashed_ % 64 == 0) whole = bytes / 64 * 64;
            if (whole > 0) lines(from, to, 1, whole);
            from += whole;
            bytes -= whole;
            if (bytes < rest.size() && bytes > 0) {
                std::memcpy(rest.data(), from, bytes);
                from = rest.data();
            }
            kernels_.hash_update(hash_, from, bytes);
            hashed_ += whole + bytes;
            if (write_ == Write::none || bytes == 0) return;
            to += whole;
        }
        if (write_ == Write::none) return;
        if (write_ == Write::stream) {
            kernels_.stream_copy(from, to, bytes);
        } else if (from != to) {
            std::memmove(to, from, bytes);
        }
    }

    // `bytes` of the target's rows from byte `begin` on, rows end to end: put together and cast block by
    // block.
    void gather(std::size_t begin, std::size_t bytes, std::byte* to) {
        alignas(64) std::array<std::byte, kBlockBytes> block;
        const std::size_t row_bytes = item_.to.bytes;
        for (std::size_t at = 0; at < bytes;) {
            const std::size_t count = std::min(kBlockBytes, bytes - at);
            for (std::size_t done = 0; done < count;) {
                const std::size_t row = (begin + at + done) / row_bytes;
                const std::size_t in_row = (begin + at + done) % row_bytes;
                const std::size_t part = std::min(count - done, row_bytes - in_row);
                convert(row, in_row, block.data() + done, part);
                done += part;
            }
            put(block.data(), write_ == Write::none ? nullptr : to + at, count);
            at += count;
        }
    }

    void convert(std::size_t row, std::size_t in_row, std::byte* block, std::size_t bytes) const {
        const std::size_t to_size = dtype_size(item_.to_dtype);
        const std::size_t from_size = dtype_size(item_.from_dtype);
        const std::byte* from = item_.from.data + row * item_.from_stride + in_row / to_size * from_size;
        const auto count = static_cast<std::int64_t>(bytes / to_size);
        // Hardware prefetches one long row by itself.
        if (item_.rows > 1) {
            kernels_.prefetch_rows(from, in_row / to_size * from_size, bytes / to_size * from_size, ahead_);
        }
        if (item_.from_dtype == item_.to_dtype) {
            std::memcpy(block, from, bytes);
        } else if (item_.from_dtype == DType::float16 || item_.to_dtype == DType::float16) {
            convert_half(from, block, count);
        } else if (item_.to_dtype == DType::bfloat16) {
            kernels_.narrow(from, block, count);
        } else {
            kernels_.widen(from, block, count);
        }
    }

    // From or to float16, by way of float32: at most a block.
    void convert_half(const std::byte* from, std::byte* block, std::int64_t count) const {
        std::array<float, kBlockBytes / 2> wide;
        const auto* values = reinterpret_cast<const float*>(from);
        if (item_.from_dtype != DType::float32) {
            const bool in_place = item_.to_dtype == DType::float32;
            float* const to = in_place ? reinterpret_cast<float*>(block) : wide.data();
            if (item_.from_dtype == DType::float16)
                detail::widen_half(reinterpret_cast<const std::uint16_t*>(from), to, count);
            else
                kernels_.widen(from, reinterpret_cast<std::byte*>(to), count);
            if (in_place) return;
            values = to;
        }
        if (item_.to_dtype == DType::float16)
            detail::narrow_half(values, reinterpret_cast<std::uint16_t*>(block), count);
        else
            kernels_.narrow(reinterpret_cast<const std::byte*>(values), block, count);
    }

    const detail::CopyKernels& kernels_;
    const CopyItem& item_;
    Write write_;
    bool hashes_;
    detail::Ahead ahead_;
    std::size_t hashed_ = 0;
    detail::HashState hash_;
};

}  // namespace

void batched_copy(Stream& stream, std::span<const CopyItem> items) {
    stream.enqueue([list = std::vector<CopyItem>(items.begin(), items.end())] {
        for (const CopyItem& item : list) {
            const Write write = item.to.data == nullptr ? Write::none
                                : item.non_temporal     ? Write::stream
                                                        : Write::store;
            Copy copy(item, write, item.checksum != nullptr);
            copy.run();
            if (item.checksum != nullptr) *item.checksum = copy.digest();
        }
        detail::copy_kernels().fence();  // streamed stores become visible before what follows
    });
}

}  // namespace tandem::ops::cpu
