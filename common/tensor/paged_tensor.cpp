#include "common/tensor/paged_tensor.h"

#include <algorithm>
#include <utility>

#include "common/device/devices.h"
#include "common/device/memory.h"
#include "common/error.h"
#include "common/log.h"

namespace tandem {

PagedTensor::PagedTensor(Shape shape, DType dtype, std::string tag, MemoryPool& pool, Pages pages)
    : tag_(std::move(tag)) {
    const Device device = pool.device();
    if (device.type == DeviceType::cpu || pages == Pages::stay) {
        tensor_ = Tensor::empty(std::move(shape), dtype, tag_, pool);
        if (pages == Pages::absent) release();
        return;
    }
    const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
    arena_ = VirtualArena::create(device, std::max<std::size_t>(bytes, 1), tag_, pages == Pages::go);
    tensor_ = Tensor::borrow(arena_->span(), std::move(shape), dtype, device);
}

PagedTensor PagedTensor::going_if_possible(Shape shape, DType dtype, std::string tag, Device device) {
    try {
        return PagedTensor(shape, dtype, tag, device_pool(device), Pages::go);
    } catch (const DeviceUnavailable& error) {
        log_info("the memory of {} will not be released: {}", tag, error.what());
        return PagedTensor(std::move(shape), dtype, std::move(tag), device_pool(device), Pages::stay);
    }
}

void PagedTensor::release() {
    if (!has_pages()) return;
    if (arena_) {
        arena_->release_pages();
        return;
    }
    require(tensor_.device().type == DeviceType::cpu, "'{}' on {} was made with pages that stay", tag_,
            to_string(tensor_.device()));
    released_ = std::make_unique<ReleasedPages>(tensor_.span(), tag_);
}

void PagedTensor::restore() {
    if (arena_) {
        arena_->restore_pages();
    } else {
        released_.reset();
    }
}

}  // namespace tandem
