#include "common/tensor/host_access.h"

#include <cstring>

namespace tandem {

void HostAccess::copy_on(Device device, ConstSpan from, Span to) {
    if (!stream_) stream_ = std::make_unique<Stream>(Stream::make(device, "host access"));
    copy(*stream_, from, to);
    stream_->synchronize();
}

Tensor HostAccess::read(const Tensor& tensor) {
    if (tensor.device().type == DeviceType::cpu) return tensor;
    Tensor here = Tensor::empty(tensor.shape(), tensor.dtype(), "host access", pinned_pool());
    copy_on(tensor.device(), tensor.span(), here.span());
    return here;
}

void HostAccess::write(const Tensor& from, const Tensor& to) {
    require(from.numel() == to.numel() && from.dtype() == to.dtype(),
            "{} of {} cannot be written to {} of {}", to_string(from.shape()), dtype_name(from.dtype()),
            to_string(to.shape()), dtype_name(to.dtype()));
    if (to.bytes() == 0) return;
    if (to.device().type == DeviceType::cpu) {
        std::memcpy(to.raw(), from.raw(), to.bytes());
    } else {
        copy_on(to.device(), from.span(), to.span());
    }
}

}  // namespace tandem
