// A flat tensor of training state that is in memory or in the tier below it: a file below the CPU's memory,
// pinned host memory below a GPU's. Its address never changes, so views of it (a DTensor, a peer's mapping)
// are valid again after onload().
//
//   resident    tensor() may be read and written
//   offloaded   its bytes are in the tier and its pages with the system; read() and write() go to the tier
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/device/tier.h"
#include "common/tensor/paged_tensor.h"

namespace tandem::trainer {

// A copy, in another dtype, of elements [first, first + copy.numel()) of a flat tensor.
struct PartCopy {
    std::int64_t first = 0;
    Tensor copy;
};

class FlatState {
  public:
    // Zeros, resident, filled in the stream's order; the pool is of the stream's device. With pages that stay
    // it can be offloaded on the CPU only.
    FlatState(Stream& stream, std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
              Pages pages = Pages::stay);
    // Zeros that are offloaded from the start (on the CPU, in a file of `directory`): no page is touched
    // before onload().
    static FlatState offloaded_zeros(std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
                                     const std::string& directory);

    const Tensor& tensor() const { return memory_.tensor(); }
    std::int64_t numel() const { return tensor().numel(); }
    bool resident() const { return memory_.has_pages(); }
    // True when peers reach it as they reach the pool's memory.
    bool of_pool() const { return memory_.of_pool(); }
    // Moves the state to the tier, which the first call makes, or back; idempotent. Blocking; on a GPU
    // whatever wrote the state must be done. Throw SystemError, OutOfMemory.
    void offload(const std::string& directory);
    void onload();
    void zero(Stream& stream);

    // Elements [first, first + part.numel()) of the offloaded state, in the stream's order.
    void read(Stream& stream, std::int64_t first, const Tensor& part) const;
    void write(Stream& stream, std::int64_t first, const Tensor& part);

  private:
    explicit FlatState(PagedTensor memory) : memory_(std::move(memory)) {}
    std::uint64_t offset(std::int64_t first) const;
    bool on_gpu() const { return tensor().device().type != DeviceType::cpu; }
    void make_tier(const std::string& directory);
    Stream& copies();

    PagedTensor memory_;
    std::unique_ptr<Tier> tier_;
    std::unique_ptr<Stream> copies_;  // on a GPU
};

}  // namespace tandem::trainer
