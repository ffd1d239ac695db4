// One memfd mapped into this process: memory that another process maps too. It has no name in any file
// system, so a crash leaves nothing behind. Pages stay where they are for the arena's whole life: touch once,
// reuse for ever.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/device/device.h"

namespace tandem {

class SharedArena {
  public:
    SharedArena() = default;
    // Creates a sparse arena: address space now, pages on first touch. Its size is sealed. Counted under `tag` in memory_stats;
    // an empty tag leaves it out, for arenas whose bytes are mostly never touched.
    static SharedArena create(const std::string& name, std::size_t bytes, std::string_view tag = "arena");
    // Maps an arena that another process made. Takes ownership of `fd`. Throws SystemError; BadInput
    // when the file is shorter than `bytes` (mapping past the end would crash on first touch), or could become so.
    static SharedArena open(int fd, std::size_t bytes);
    // The same for memory that another process owns and this one only reads: a write to it is a SIGSEGV, and
    // nothing is touched by mapping it, however large and sparse it is.
    static SharedArena open_read_only(int fd, std::size_t bytes);

    SharedArena(SharedArena&& other) noexcept;
    SharedArena& operator=(SharedArena&& other) noexcept;
    SharedArena(const SharedArena&) = delete;
    SharedArena& operator=(const SharedArena&) = delete;
    ~SharedArena();

    int fd() const { return fd_; }  // owned by the arena; pass it on with SCM_RIGHTS or by inheritance
    std::byte* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    Span span() const { return {data_, bytes_}; }
    void touch();  // first touch of every page, by this thread; in huge pages (huge_pages.h) where it can be

  private:
    static SharedArena open(int fd, std::size_t bytes, int protection);
    void close() noexcept;
    int fd_ = -1;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
    int tag_ = -1;
};

}  // namespace tandem
