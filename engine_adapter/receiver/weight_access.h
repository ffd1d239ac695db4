// How the receiver's threads reach the engine's weights: in place in host memory; on a GPU through pinned
// host memory, a transfer at a time, so that every transport that ends in host memory works there too. Deltas
// are laid over the weights where these lie.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "common/device/stream.h"
#include "common/ops/batched_copy.h"
#include "common/ops/delta.h"

namespace tandem::engine {

// Thread-safe for ranges that do not overlap. Every call blocks until it is done.
class WeightAccess {
  public:
    explicit WeightAccess(Device device);

    // As ops::batched_copy, from host memory; item.to lies on the device.
    void write(const ops::CopyItem& item);
    // As ops::copy_checksum of an item that reads the device's memory.
    ops::Checksum checksum(const ops::CopyItem& item);
    ops::Checksum checksum(ConstSpan bytes);

    struct Rows {
        std::byte* data = nullptr;  // on the device
        std::size_t stride = 0;     // bytes from row to row, of more than one
        std::int64_t count = 0;
        std::int64_t elements = 0;  // of a row
        std::size_t width = 0;      // bytes of an element
        std::size_t row_bytes() const { return static_cast<std::size_t>(elements) * width; }
    };
    // As ops::delta_apply.
    void apply(ops::DeltaCodec codec, ConstSpan encoded, const Rows& rows);

  private:
    enum class Way { download, upload };
    // Between the rows and `packed`, where they follow each other.
    void move(const Rows& rows, Span packed, Way way);

    std::mutex mutex_;
    std::unique_ptr<Stream> stream_;  // null: host memory
};

}  // namespace tandem::engine
