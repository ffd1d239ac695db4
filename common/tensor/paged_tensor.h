// A tensor whose pages can be given back while it lives: what it held is lost, its address stays, and so
// views of it are right again when the pages are back. Of the CPU's memory it is a block of a pool; of a
// GPU's a virtual arena, which peers and engines cannot open by an IPC handle.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/device/tier.h"
#include "common/device/virtual_arena.h"
#include "common/tensor/tensor.h"

namespace tandem {

enum class Pages : std::uint8_t {
    stay,    // on a GPU: a block of the pool, whose pages cannot go
    go,      // they can be given back
    absent,  // the same, and there are none before the first restore()
};

class PagedTensor {
  public:
    // Contents undefined. Counted under `tag` while it has pages. On a GPU with pages that go the pool only
    // names the device. Throws OutOfMemory; DeviceUnavailable where a GPU has no virtual memory management.
    PagedTensor(Shape shape, DType dtype, std::string tag, MemoryPool& pool, Pages pages = Pages::stay);
    // On `device`, with pages that go where it can give pages back; elsewhere they stay, which the log says.
    static PagedTensor going_if_possible(Shape shape, DType dtype, std::string tag, Device device);
    PagedTensor(PagedTensor&&) noexcept = default;
    PagedTensor& operator=(PagedTensor&&) = delete;

    const Tensor& tensor() const { return tensor_; }  // on a GPU only valid while this lives
    const std::string& tag() const { return tag_; }
    bool has_pages() const { return arena_ ? arena_->has_pages() : !released_; }
    // Whether peers reach what they reach of the pool.
    bool of_pool() const { return !arena_; }
    // Nothing happens when they are gone, or there, already. On a GPU release() waits for its work, and
    // throws InvalidArgument when the pages are to stay. restore() throws OutOfMemory.
    void release();
    void restore();

  private:
    std::string tag_;
    std::optional<VirtualArena> arena_;  // of a GPU
    Tensor tensor_;
    std::unique_ptr<ReleasedPages>
        released_;  // of the CPU; last: it counts the memory again before that goes
};

}  // namespace tandem
