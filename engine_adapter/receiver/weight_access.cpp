#include "engine_adapter/receiver/weight_access.h"

#include "common/device/memory.h"
#include "common/tensor/tensor.h"

namespace tandem::engine {
namespace {

constexpr const char* kTag = "receiver.staging";

WeightAccess::Rows rows_of(const std::byte* data, std::size_t bytes, std::int64_t count, std::size_t stride) {
    return {const_cast<std::byte*>(data), stride, count, static_cast<std::int64_t>(bytes), 1};
}

}  // namespace

WeightAccess::WeightAccess(Device device) {
    if (device.type != DeviceType::cpu) stream_ = std::make_unique<Stream>(Stream::make(device, "receiver"));
}

void WeightAccess::move(const Rows& rows, Span packed, Way way) {
    if (packed.bytes == 0) return;
    const bool together = rows.count == 1 || rows.stride == rows.row_bytes();
    const std::size_t piece = together ? packed.bytes : rows.row_bytes();
    const std::lock_guard lock(mutex_);
    for (std::size_t done = 0, row = 0; done < packed.bytes; done += piece, ++row) {
        const Span there{rows.data + row * rows.stride, piece};
        const Span here = packed.subspan(done, piece);
        copy(*stream_, way == Way::upload ? here : there, way == Way::upload ? there : here);
    }
    stream_->synchronize();
}

void WeightAccess::write(const ops::CopyItem& item) {
    Stream here = Stream::make_inline();
    if (!stream_) return ops::batched_copy(here, {&item, 1});
    const Rows rows = rows_of(item.to.data, item.to.bytes, item.rows, item.to_stride);
    const Buffer staged(static_cast<std::size_t>(item.rows) * item.to.bytes, kTag, pinned_pool());
    ops::CopyItem first = item;
    first.to.data = staged.data();
    first.to_stride = item.to.bytes;
    ops::batched_copy(here, {&first, 1});
    move(rows, staged.span(), Way::upload);
}

ops::Checksum WeightAccess::checksum(const ops::CopyItem& item) {
    if (!stream_) return ops::copy_checksum(item);
    const Rows rows = rows_of(item.from.data, item.from.bytes, item.rows, item.from_stride);
    const Buffer staged(static_cast<std::size_t>(item.rows) * item.from.bytes, kTag, pinned_pool());
    move(rows, staged.span(), Way::download);
    ops::CopyItem read = item;
    read.from.data = staged.data();
    read.from_stride = item.from.bytes;
    return ops::copy_checksum(read);
}

ops::Checksum WeightAccess::checksum(ConstSpan bytes) {
    if (!stream_) return ops::checksum(bytes);
    const Buffer staged(bytes.bytes, kTag, pinned_pool());
    move(rows_of(bytes.data, bytes.bytes, 1, 0), staged.span(), Way::download);
    return ops::checksum(staged.span());
}

void WeightAccess::apply(ops::DeltaCodec codec, ConstSpan encoded, const Rows& rows) {
    if (!stream_)
        return ops::delta_apply(codec, encoded, rows.width, rows.count, rows.elements, rows.data,
                                rows.stride);
    const std::lock_guard lock(mutex_);
    stream_->use_for_allocations();  // what this thread takes there is this stream's to order
    const Tensor there =
        Tensor::empty(*stream_, {static_cast<std::int64_t>(encoded.bytes)}, DType::uint8, kTag);
    copy(*stream_, encoded, there.span());
    stream_->synchronize();  // `encoded` is the caller's again, whatever the next line finds
    ops::delta_apply(*stream_, codec, there.span(), rows.width, rows.count, rows.elements, rows.data,
                     rows.stride);
}

}  // namespace tandem::engine
