#include "sync/session/pipeline.h"

#include <algorithm>

#include "common/error.h"
#include "common/trace.h"

namespace tandem::sync {

using Clock = std::chrono::steady_clock;

Pipeline::Pipeline(const Plan& plan, Gather& gather, comm::Communicator& world, engine::Engine* engine,
                   const engine::StagingArea& staging, Options options)
    : plan_(plan),
      gather_(gather),
      world_(world),
      engine_(engine),
      staging_(staging),
      options_(std::move(options)) {
    if (engine_ == nullptr) return;
    entries_of_.resize(plan_.tensors.size());
    for (const PlanTensor& tensor : plan_.tensors) infos_.push_back(tensor.info);
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        const int index = static_cast<int>(b);
        engine::Bucket& bucket = buckets_.emplace_back(engine::Bucket{index, index % staging_.slots, {}});
        for (const Piece& piece : plan_.buckets[b].pieces) {
            const auto tensor = static_cast<std::size_t>(piece.tensor);
            entries_of_[tensor].emplace_back(index, bucket.entries.size());
            bucket.entries.push_back(
                {infos_[tensor].name, piece.tensor_offset, piece.bucket_offset, piece.bytes, {}, piece.rank});
        }
    }
    const auto entry = [this](std::pair<int, std::size_t> at) -> const engine::BucketEntry& {
        return buckets_[static_cast<std::size_t>(at.first)].entries[at.second];
    };
    for (auto& list : entries_of_) {
        std::sort(list.begin(), list.end(),
                  [&](auto a, auto b) { return entry(a).tensor_offset < entry(b).tensor_offset; });
    }
}

Event Pipeline::run(Health& health, PhaseTimes& times, Stream& stream) {
    posted_ = 0;
    const int count = static_cast<int>(plan_.buckets.size());
    const auto gathering = [this, &times](bool begins) {
        return [this, &times, begins] {
            if (begins)
                mark_ = Clock::now();
            else
                times.gather += std::chrono::duration<double, std::milli>(Clock::now() - mark_).count();
        };
    };
    for (int n = 0; n < count; ++n) {
        stream.enqueue(gathering(true));
        gather_.fill(n, health, stream);
        stream.enqueue(gathering(false));
        stream.enqueue([this, n, &health, &times] { wait_loaded(n + 1 - staging_.slots, health, times); });
        stream.enqueue(gathering(true));
        gather_.exchange(health, stream);
        stream.enqueue(gathering(false));
        stream.enqueue([this, n, &health] {
            if (engine_ != nullptr && !health.failed) load(n, health);
        });
    }
    stream.enqueue([this, count, &health, &times] {
        for (int n = count + 1 - staging_.slots; n < count; ++n) wait_loaded(n, health, times);
    });
    return stream.record();
}

void Pipeline::load(int bucket, Health& health) {
    const auto index = static_cast<std::size_t>(bucket);
    const PlanBucket& content = plan_.buckets[index];
    auto& entries = buckets_[index].entries;
    for (int rank = 0; rank < world_.size(); ++rank) {
        const std::size_t first = content.first_piece[static_cast<std::size_t>(rank)];
        const std::size_t last = content.first_piece[static_cast<std::size_t>(rank) + 1];
        for (std::size_t i = first; i < last; ++i) entries[i].checksum = gather_.checksum(rank, i - first);
    }
    try {
        if (options_.after_gather) options_.after_gather(bucket, staging_.slot(bucket % staging_.slots));
        engine_->load_async(buckets_[index], Deadline::after(options_.load_deadline));
        posted_ = bucket + 1;
    } catch (const std::exception& error) {
        health.fail("load", engine_->peer(), bucket, error.what());
    }
}

void Pipeline::wait_loaded(int bucket, Health& health, PhaseTimes& times) {
    if (engine_ == nullptr || health.failed || bucket < 0 || bucket >= posted_) return;
    const trace::Scope scope("wait for bucket " + std::to_string(bucket), "load");
    try {
        times.copy += engine_->wait_loaded(bucket, Deadline::after(options_.load_deadline));
    } catch (const std::exception& error) {
        health.fail("load", engine_->peer(), bucket, error.what());
    }
}

ops::Checksum Pipeline::manifest(std::int64_t version) const {
    std::vector<ops::Checksum> checksums;
    std::vector<ops::Checksum> parts;
    for (const auto& list : entries_of_) {
        parts.clear();
        for (const auto& [bucket, entry] : list) {
            parts.push_back(buckets_[static_cast<std::size_t>(bucket)].entries[entry].checksum);
        }
        checksums.push_back(ops::combine(parts));
    }
    return engine::manifest_checksum(version, infos_, checksums);
}

}  // namespace tandem::sync
