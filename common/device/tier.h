// A tier below a device's memory, for offloaded state. Below the CPU's it is a file without a name on a local
// disk, read and written past the process's memory (never mapped); below a GPU's it is pinned host memory.
// Bytes that were never written read as zeros.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/device/device.h"
#include "common/device/stream.h"

namespace tandem {

// Thread-safe for ranges that do not overlap.
class Tier {
  public:
    virtual ~Tier() = default;
    virtual std::uint64_t bytes() const = 0;
    // Blocking. Throw SystemError naming the tier and the range.
    virtual void write(std::uint64_t offset, ConstSpan from) = 0;
    virtual void read(std::uint64_t offset, Span to) = 0;
    // In the stream's order; the memory stays the caller's until the stream is past it. A file takes streams
    // of the CPU only, and on those its errors stick to the stream.
    virtual void write(Stream& stream, std::uint64_t offset, ConstSpan from);
    virtual void read(Stream& stream, std::uint64_t offset, Span to);
};

// `bytes` in `directory`, reserved now: a full disk is an error here and not in the middle of a run. The
// space is freed with the object, or with the process, however that ends. Throws SystemError.
std::unique_ptr<Tier> make_file_tier(const std::string& directory, std::uint64_t bytes);

// `bytes` of pinned_pool()'s memory, counted under `tag` (empty: not, as a file's bytes are not): for state
// of a GPU, copied at the bus's speed beside what the GPU computes. Streams of any device. Throws
// OutOfMemory.
std::unique_ptr<Tier> make_pinned_tier(std::uint64_t bytes, std::string_view tag);

// Gives the whole pages of a live range back to the system while it lives: the contents are lost, the address
// stays. The range must be of `tag`, which does not count it meanwhile.
class ReleasedPages {
  public:
    ReleasedPages(Span range, std::string_view tag);
    ~ReleasedPages();
    ReleasedPages(const ReleasedPages&) = delete;
    ReleasedPages& operator=(const ReleasedPages&) = delete;

  private:
    Span range_;
    int tag_;
};

}  // namespace tandem
