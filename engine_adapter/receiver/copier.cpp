#include "engine_adapter/receiver/copier.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/ops/batched_copy.h"

namespace tandem::engine {
namespace {

constexpr std::chrono::microseconds kPause{20};
constexpr std::size_t kLinkPiece = 16 << 10;

std::size_t source_bytes(const ops::CopyItem& item) {
    return static_cast<std::size_t>(item.rows) * item.from.bytes;
}

}  // namespace

Copier::Copier(Device weights, int threads, double link_bytes_per_s)
    : device_(weights), access_(weights), workers_(threads), link_(link_bytes_per_s) {
    if (weights.type == DeviceType::cuda) stream_.emplace(Stream::make(weights, "receiver"));
}

void Copier::wait_for(const std::vector<SharedEvent>& events) {
    if (!stream_) return;
    for (const SharedEvent& event : events) event.wait(*stream_);
}

const std::vector<ops::Checksum>& Copier::copy(Device from, std::size_t count, const Items& item,
                                               BucketReceiver* receiver) {
    if (from.type == DeviceType::cuda) return run_on_gpu(count, item, true, receiver);
    found_.resize(count);
    workers_.run(count, [&](std::size_t i) {
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
    workers_.run(count, [&](std::size_t i) { found_[i] = access_.checksum(item(i)); });
    return found_;
}

const std::vector<ops::Checksum>& Copier::run_on_gpu(std::size_t count, const Items& item, bool linked,
                                                     BucketReceiver* receiver) {
    found_.resize(count);
    items_.clear();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
        items_.push_back(item(i));
        items_.back().checksum = &found_[i];
        bytes += source_bytes(items_.back());
    }
    if (linked) take(bytes, receiver);
    if (receiver != nullptr) stream_->wait(receiver->arrived());
    ops::batched_copy(*stream_, items_);
    if (receiver != nullptr) finish(*receiver);
    stream_->synchronize();
    return found_;
}

// A slow link lets a bucket that comes over another one look after it, too.
void Copier::take(std::size_t bytes, BucketReceiver* receiver) {
    if (receiver == nullptr || !link_.limited()) return link_.take(bytes);
    for (std::size_t left = bytes; left > 0; receiver->check()) {
        const std::size_t piece = std::min(left, kLinkPiece);
        link_.take(piece);
        left -= piece;
    }
}

// What the copies read is not let go of before they are over, whatever is thrown meanwhile.
void Copier::finish(BucketReceiver& receiver) {
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

}  // namespace tandem::engine
