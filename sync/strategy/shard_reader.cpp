#include "sync/strategy/shard_reader.h"

#include <unistd.h>

#include "common/error.h"
#include "common/log.h"
#include "common/ops/batched_copy.h"

namespace tandem::sync {

ShardReader::ShardReader(const SyncContext& context, const BucketPlan& buckets)
    : plan_(context.plan),
      buckets_(buckets),
      source_(context.source),
      quantizer_(context.quantizer),
      local_(context.local),
      rank_(static_cast<std::size_t>(context.world.rank())),
      rows_(buckets.pieces.size()) {
    if (context.device.type == DeviceType::cuda) stream_.emplace(Stream::make(context.device, "sync copies"));
}

std::vector<engine::RegionEvent> ShardReader::share_event(comm::Communicator& world) {
    if (!stream_) return {};
    engine::RegionEvent mine;
    try {
        written_ = SharedEvent::create(stream_->device());
        mine = {written_->handle(), ::getpid()};
    } catch (const Error& error) {
        log_info("no event orders the engine behind this rank's copies: {}", error.what());
        written_.reset();
    }
    std::vector<engine::RegionEvent> all(static_cast<std::size_t>(world.size()));
    world.all_gather({reinterpret_cast<const std::byte*>(&mine), sizeof(mine)},
                     {reinterpret_cast<std::byte*>(all.data()), sizeof(mine) * all.size()});
    return all;
}

const Tensor& ShardReader::tensor(int source_tensor) const {
    if (const Tensor* scales = quantizer_.scales(source_tensor)) return *scales;
    const int index = local_[static_cast<std::size_t>(source_tensor)];
    return source_.tensors()[static_cast<std::size_t>(index)].tensor.local();
}

void ShardReader::locate() {
    const Device device = stream_ ? stream_->device() : Device{};
    for (std::size_t b = 0; b < buckets_.buckets(); ++b) {
        for (std::size_t i = begin(b); i < end(b); ++i) {
            const Move& move = buckets_.pieces[i].move;
            const Tensor& local = tensor(move.source_tensor);
            const std::int64_t last =
                move.source_offset + (move.rows - 1) * move.source_stride + move.row_elements;
            const bool quantized = quantizer_.quantizes(move.source_tensor);
            const DType held = quantized ? quantizer_.held(move.source_tensor) : source_dtype(plan_, move);
            enforce(local.dtype() == held && last <= local.numel() &&
                        (local.numel() == 0 || local.device() == device),
                    "tensor '{}' changed its dtype, layout or device since the session began",
                    plan_.source().tensors[static_cast<std::size_t>(move.source_tensor)].name);
            const std::size_t width = dtype_size(held);
            rows_[i] = {local.raw() + static_cast<std::size_t>(move.source_offset) * width,
                        static_cast<std::size_t>(move.source_stride) * width};
        }
    }
}

std::size_t ShardReader::row_bytes(std::size_t index) const {
    const Move& move = buckets_.pieces[index].move;
    return static_cast<std::size_t>(move.row_elements) * dtype_size(target_of(plan_, move).dtype);
}

void ShardReader::run(std::span<const Order> orders, bool non_temporal, ops::Checksum* checksums,
                      Deadline deadline) const {
    list_.clear();
    for (std::size_t i = 0; i < orders.size(); ++i) {
        const auto& [index, to, to_stride] = orders[i];
        const Move& move = buckets_.pieces[index].move;
        if (quantizer_.quantizes(move.source_tensor)) {
            enforce(to != nullptr, "what is quantised has no checksum before it is copied");
            checksums[i] = quantizer_.copy(move, to, to_stride);
            continue;
        }
        const DType from = source_dtype(plan_, move);
        const DType target = target_of(plan_, move).dtype;
        const Rows& lies = rows(index);
        ops::CopyItem& item = list_.emplace_back();
        item.from = {lies.data, static_cast<std::size_t>(move.row_elements) * dtype_size(from)};
        item.to = {to, row_bytes(index)};
        if (from != target) {
            item.from_dtype = from;
            item.to_dtype = target;
        }
        item.rows = move.rows;
        item.from_stride = lies.stride;
        item.to_stride = to_stride;
        item.checksum = &checksums[i];
        item.non_temporal = non_temporal;
    }
    Stream here = Stream::make_inline();
    Stream& stream = stream_ ? *stream_ : here;
    ops::batched_copy(stream, list_);
    if (written_) written_->record(stream);
    stream.record().wait(deadline);
    stream.synchronize();  // hands over what the GPU has found
}

}  // namespace tandem::sync
