#include "trainer/main/weight_source.h"

#include <cstddef>

namespace tandem::trainer {

PolicySource::PolicySource(const Policy& policy, MemoryPool* mirrors)
    : policy_(policy), architecture_(policy.config()) {
    if (mirrors != nullptr) stream_ = std::make_unique<Stream>(Stream::make(policy.device(), "sync mirror"));
    for (const auto& [name, tensor] : policy.parameters()) {
        if (!tensor.is_here()) continue;
        if (mirrors == nullptr) {
            tensors_.push_back({name, tensor});
            continue;
        }
        const Tensor& local = tensor.local();
        const Tensor mirror = Tensor::empty(local.shape(), local.dtype(), "sync mirror", *mirrors);
        tensors_.push_back(
            {name, DTensor::from_local(mirror, tensor.mesh(), tensor.placements(), tensor.shape())});
    }
    if (!stream_) return;
    ready();  // the mirrors' memory is touched now, not in the first push
    stream_->synchronize();
}

Event PolicySource::ready() const {
    if (!stream_) return {};
    std::size_t mirror = 0;
    for (const auto& [name, tensor] : policy_.parameters()) {
        if (tensor.is_here()) copy(*stream_, tensor.local(), tensors_[mirror++].tensor.local());
    }
    return stream_->record();
}

}  // namespace tandem::trainer
