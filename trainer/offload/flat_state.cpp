#include "trainer/offload/flat_state.h"

#include <algorithm>
#include <utility>

#include "common/ops/elementwise.h"

namespace tandem::trainer {

FlatState::FlatState(Stream& stream, std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
                     Pages pages)
    : memory_({numel}, dtype, std::move(tag), pool, pages) {
    fill_zero(stream, tensor().span());
}

FlatState FlatState::offloaded_zeros(std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
                                     const std::string& directory) {
    FlatState state(PagedTensor({numel}, dtype, std::move(tag), pool, Pages::absent));
    state.make_tier(directory);
    return state;
}

void FlatState::make_tier(const std::string& directory) {
    if (tier_) return;
    // Not counted, as a file's bytes are not: offloaded state must not look as if it were still in memory.
    tier_ = on_gpu() ? make_pinned_tier(tensor().bytes(), "") : make_file_tier(directory, tensor().bytes());
}

Stream& FlatState::copies() {
    if (!copies_) copies_ = std::make_unique<Stream>(Stream::make(tensor().device(), "offload"));
    return *copies_;
}

void FlatState::offload(const std::string& directory) {
    if (!resident()) return;
    make_tier(directory);
    if (on_gpu()) {
        tier_->write(copies(), 0, tensor().span());
        copies().synchronize();
    } else {
        tier_->write(0, tensor().span());
    }
    memory_.release();
}

void FlatState::onload() {
    if (resident()) return;
    memory_.restore();
    if (on_gpu()) {
        tier_->read(copies(), 0, tensor().span());
        copies().synchronize();
    } else {
        tier_->read(0, tensor().span());
    }
}

void FlatState::zero(Stream& stream) {
    if (resident()) return ops::fill_zero(stream, tensor());
    // Chunks of zeros: a hole in a file would lose the space that was reserved.
    constexpr std::int64_t kChunk = 1 << 20;
    const Tensor zeros =
        Tensor::zeros(stream, {std::min(kChunk, numel())}, tensor().dtype(), "offload_chunks");
    for (std::int64_t first = 0; first < numel(); first += kChunk)
        write(stream, first, zeros.rows(0, std::min(kChunk, numel() - first)));
    stream.synchronize();
}

std::uint64_t FlatState::offset(std::int64_t first) const {
    require(!resident(), "{}: elements of the tier while the state is in memory", memory_.tag());
    return static_cast<std::uint64_t>(first) * dtype_size(tensor().dtype());
}

void FlatState::read(Stream& stream, std::int64_t first, const Tensor& part) const {
    tier_->read(stream, offset(first), part.span());
}

void FlatState::write(Stream& stream, std::int64_t first, const Tensor& part) {
    tier_->write(stream, offset(first), part.span());
}

}  // namespace tandem::trainer
