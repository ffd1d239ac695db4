#include "engine_adapter/receiver/weight_writer.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/device/memory.h"
#include "common/ops/batched_copy.h"
#include "common/tensor/tensor.h"

namespace tandem::engine {
namespace {

constexpr std::chrono::microseconds kPause{20};
constexpr const char* kTag = "receiver.staging";

WeightWriter::Rows rows_of(const std::byte* data, std::size_t bytes, std::int64_t count, std::size_t stride) {
    return {const_cast<std::byte*>(data), stride, count, static_cast<std::int64_t>(bytes), 1};
}

}  // namespace

WeightWriter::WeightWriter(Device weights, int threads) : device_(weights), workers_(threads) {
    if (weights.type != DeviceType::cpu) stream_.emplace(Stream::make(weights, "receiver"));
}

const std::vector<ops::Checksum>& WeightWriter::write_all(Device from, std::size_t count, const Items& item,
                                                          BucketReceiver* receiver,
                                                          std::span<const SharedEvent> written,
                                                          const Core& core) {
    if (from.type == DeviceType::cuda) {
        for (const SharedEvent& event : written) event.wait(*stream_);
        return run_on_gpu(count, item, receiver);
    }
    found_.resize(count);
    const auto job = [&](std::size_t i) {
        ops::CopyItem one = item(i);
        one.checksum = &found_[i];
        write(one);
    };
    share(count, job, core);
    return found_;
}

const std::vector<ops::Checksum>& WeightWriter::checksums(std::size_t count, const Items& item) {
    if (stream_) return run_on_gpu(count, item);
    found_.resize(count);
    workers_.run(count, [&](std::size_t i) { found_[i] = checksum(item(i)); });
    return found_;
}

const std::vector<ops::Checksum>& WeightWriter::run_on_gpu(std::size_t count, const Items& item,
                                                           BucketReceiver* receiver) {
    found_.resize(count);
    items_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        items_.push_back(item(i));
        items_.back().checksum = &found_[i];
    }
    if (receiver != nullptr) stream_->wait(receiver->arrived());
    ops::batched_copy(*stream_, items_);
    if (receiver != nullptr) finish(*receiver);
    stream_->synchronize();
    return found_;
}

// Returns, or throws, only when the copies have ended: they read the receiver's memory.
void WeightWriter::finish(BucketReceiver& receiver) {
    try {
        const Event done = stream_->record();
        receiver.release_after(done);
        while (done.poll() == Poll::pending) {
            receiver.check();
            std::this_thread::sleep_for(kPause);
        }
    } catch (...) {
        stream_->synchronize();
        throw;
    }
}

bool WeightWriter::can_relay(std::span<const int> cores) {
    return !stream_ && !cores.empty() && workers_.hold([&](std::size_t i) { return cores[i]; }, cores.size());
}

void WeightWriter::relay(std::span<const int> cores, const std::function<void(std::size_t)>& job,
                         const std::function<void()>& meanwhile) {
    workers_.run_on([&](std::size_t i) { return cores[i]; }, cores.size(), job, meanwhile);
}

void WeightWriter::move(const Rows& rows, Span packed, Direction direction) {
    if (packed.bytes == 0) return;
    const bool together = rows.count == 1 || rows.stride == rows.row_bytes();
    const std::size_t piece = together ? packed.bytes : rows.row_bytes();
    const std::lock_guard lock(mutex_);
    for (std::size_t done = 0, row = 0; done < packed.bytes; done += piece, ++row) {
        const Span there{rows.data + row * rows.stride, piece};
        const Span here = packed.subspan(done, piece);
        copy(*stream_, direction == Direction::upload ? here : there,
             direction == Direction::upload ? there : here);
    }
    stream_->synchronize();
}

void WeightWriter::write(const ops::CopyItem& item) {
    Stream here = Stream::make_inline();
    if (!stream_) return ops::batched_copy(here, {&item, 1});
    const Rows rows = rows_of(item.to.data, item.to.bytes, item.rows, item.to_stride);
    const Buffer staged(static_cast<std::size_t>(item.rows) * item.to.bytes, kTag, pinned_pool());
    ops::CopyItem first = item;
    first.to.data = staged.data();
    first.to_stride = item.to.bytes;
    ops::batched_copy(here, {&first, 1});
    move(rows, staged.span(), Direction::upload);
}

ops::Checksum WeightWriter::checksum(const ops::CopyItem& item) {
    if (!stream_) return ops::copy_checksum(item);
    const Rows rows = rows_of(item.from.data, item.from.bytes, item.rows, item.from_stride);
    const Buffer staged(static_cast<std::size_t>(item.rows) * item.from.bytes, kTag, pinned_pool());
    move(rows, staged.span(), Direction::download);
    ops::CopyItem read = item;
    read.from.data = staged.data();
    read.from_stride = item.from.bytes;
    return ops::copy_checksum(read);
}

ops::Checksum WeightWriter::checksum(ConstSpan bytes) {
    if (!stream_) return ops::checksum(bytes);
    const Buffer staged(bytes.bytes, kTag, pinned_pool());
    move(rows_of(bytes.data, bytes.bytes, 1, 0), staged.span(), Direction::download);
    return ops::checksum(staged.span());
}

void WeightWriter::apply(ops::DeltaCodec codec, ConstSpan encoded, const Rows& rows) {
    if (!stream_)
        return ops::delta_apply(codec, encoded, rows.width, rows.count, rows.elements, rows.data,
                                rows.stride);
    const std::lock_guard lock(mutex_);
    stream_->use_for_allocations();  // this thread's allocations there are ordered by this stream
    const Tensor there =
        Tensor::empty(*stream_, {static_cast<std::int64_t>(encoded.bytes)}, DType::uint8, kTag);
    copy(*stream_, encoded, there.span());
    stream_->synchronize();  // `encoded` is the caller's again, even if the next line throws
    ops::delta_apply(*stream_, codec, there.span(), rows.width, rows.count, rows.elements, rows.data,
                     rows.stride);
}

}  // namespace tandem::engine
