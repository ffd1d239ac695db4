#include "engine_adapter/receiver/copier.h"

#include "common/ops/checked_copy.h"

namespace tandem::engine {
namespace {

std::size_t source_bytes(const ops::CopyItem& item) {
    return static_cast<std::size_t>(item.rows) * item.from.bytes;
}

}  // namespace

Copier::Copier(Device weights, int threads, double link_bytes_per_s)
    : device_(weights), access_(weights), team_(threads), link_(link_bytes_per_s) {
    if (weights.type == DeviceType::cuda) stream_.emplace(Stream::make(weights, "receiver"));
}

void Copier::wait_for(const std::vector<SharedEvent>& events) {
    if (!stream_) return;
    for (const SharedEvent& event : events) event.wait(*stream_);
}

const std::vector<ops::Checksum>& Copier::copy(Device from, std::size_t count, const Items& item) {
    if (from.type == DeviceType::cuda) return run_on_gpu(count, item, true);
    found_.resize(count);
    team_.run(count, [&](std::size_t i) {
        ops::CopyItem one = item(i);
        one.checksum = &found_[i];
        link_.take(source_bytes(one));
        access_.write(one);
    });
    return found_;
}

const std::vector<ops::Checksum>& Copier::read(std::size_t count, const Items& item) {
    if (stream_) return run_on_gpu(count, item, false);
    found_.resize(count);
    team_.run(count, [&](std::size_t i) { found_[i] = access_.checksum(item(i)); });
    return found_;
}

const std::vector<ops::Checksum>& Copier::run_on_gpu(std::size_t count, const Items& item, bool linked) {
    found_.resize(count);
    items_.clear();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
        items_.push_back(item(i));
        items_.back().checksum = &found_[i];
        bytes += source_bytes(items_.back());
    }
    if (linked) link_.take(bytes);
    ops::checked_copy(*stream_, items_);
    stream_->synchronize();
    return found_;
}

}  // namespace tandem::engine
