#include "trainer/offload/flat_state.h"

#include <utility>

#include "common/ops/elementwise.h"

namespace tandem::trainer {

FlatState::FlatState(Stream& stream, std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool)
    : tensor_(Tensor::empty({numel}, dtype, tag, pool)), tag_(std::move(tag)) {
    fill_zero(stream, tensor_.span());
}

FlatState FlatState::parked_zeros(std::int64_t numel, DType dtype, std::string tag, MemoryPool& pool,
                                  const std::string& directory) {
    FlatState state(Tensor::empty({numel}, dtype, tag, pool), tag);
    state.tier_ = make_file_tier(directory, state.tensor_.bytes());
    state.released_ = std::make_unique<ReleasedPages>(state.tensor_.span(), state.tag_);
    return state;
}

void FlatState::park(const std::string& directory) {
    if (!resident()) return;
    if (!tier_) tier_ = make_file_tier(directory, tensor_.bytes());
    tier_->write(0, tensor_.span());
    released_ = std::make_unique<ReleasedPages>(tensor_.span(), tag_);
}

void FlatState::fetch() {
    if (resident()) return;
    released_.reset();
    tier_->read(0, tensor_.span());
}

void FlatState::zero(Stream& stream) {
    if (resident()) return ops::fill_zero(stream, tensor_);
    // Chunks of zeros: a hole in the file would lose the room that was reserved.
    constexpr std::int64_t kChunk = 1 << 20;
    const Tensor zeros = Tensor::zeros({std::min(kChunk, numel())}, tensor_.dtype(), "offload_chunks");
    for (std::int64_t first = 0; first < numel(); first += kChunk)
        write(stream, first, zeros.rows(0, std::min(kChunk, numel() - first)));
    stream.synchronize();
}

std::uint64_t FlatState::offset(std::int64_t first) const {
    require(!resident(), "{}: elements of the tier while the state is in memory", tag_);
    return static_cast<std::uint64_t>(first) * dtype_size(tensor_.dtype());
}

void FlatState::read(Stream& stream, std::int64_t first, const Tensor& part) const {
    tier_->read(stream, offset(first), part.span());
}

void FlatState::write(Stream& stream, std::int64_t first, const Tensor& part) {
    tier_->write(stream, offset(first), part.span());
}

}  // namespace tandem::trainer
