#include "engine_adapter/hf_directory/version_stager.h"

#include <chrono>
#include <utility>

#include "common/error.h"
#include "common/stopwatch.h"
#include "common/trace.h"

namespace tandem::engine {

VersionStager::VersionStager(std::vector<TensorInfo> tensors, std::string peer)
    : tensors_(std::move(tensors)), peer_(std::move(peer)), stream_(Stream::make_worker("stage")) {
    for (const TensorInfo& tensor : tensors_) slots_.push_back({tensor, {nullptr, tensor_bytes(tensor)}});
}

void VersionStager::attach(const std::vector<Region>& regions, const TransferPlan& plan) {
    if (open_ && !finished_) throw ProtocolError(fmt::format("attach to {} while a version is open", peer_));
    const Device device = device_for(regions);
    std::vector<MappedRegion> mapped;
    for (const Region& region : regions) mapped.push_back({region.memory, region.device, nullptr, {}});
    drop();
    progress_.reset();
    if (!writer_ || writer_->device() != device) writer_.emplace(device);
    attached_.emplace(std::move(mapped), plan, slots_);
    progress_.emplace(tensors_, attached_->plan());
}

void VersionStager::release() {
    drop();
    progress_.reset();
    attached_.reset();
    probe_.free_memory();
    free_memory();
}

double VersionStager::probe(std::uint64_t offset, std::uint64_t bytes, std::uint64_t piece_bytes) {
    if (!attached_) throw ProtocolError(fmt::format("probe of {} before attach", peer_));
    return probe_.measure_ms(attached_->bytes_of(0, offset, bytes), piece_bytes, *writer_);
}

void VersionStager::begin(std::int64_t version) {
    if (!attached_) throw ProtocolError(fmt::format("begin at {} before attach", peer_));
    if (open_ && !finished_) throw ProtocolError(fmt::format("begin at {} while a version is open", peer_));
    drop();
    fills_ = take_memory(version, slots_);
    open_ = true;
    announced_.clear();
    progress_->start(version);
    failed_.clear();
}

void VersionStager::load(int bucket, std::span<const ops::Checksum> checksums, Deadline) {
    if (!open_ || finished_) throw ProtocolError(fmt::format("load to {} before begin", peer_));
    progress_->add_bucket(bucket, checksums);
    announced_[bucket] = {checksums.begin(), checksums.end()};
    const auto state = std::make_shared<Bucket>();
    if (!fills_) {
        state->done = stream_.record();
        in_flight_[bucket] = state;
        return;
    }
    stream_.enqueue([this, bucket, state, announced = std::vector(checksums.begin(), checksums.end())] {
        const auto start = std::chrono::steady_clock::now();
        try {
            const trace::Scope scope("stage bucket " + std::to_string(bucket), "copy");
            attached_->load(static_cast<std::size_t>(bucket), announced, *writer_);
        } catch (const std::exception& error) {
            state->error = error.what();
        }
        state->ms = ms_since(start);
    });
    state->done = stream_.record();
    in_flight_[bucket] = state;
}

void VersionStager::load_delta(int, std::span<const DeltaEntry>, Deadline) {
    throw BadInput(peer_ + " takes whole versions, no changes: use mode gather");
}

double VersionStager::wait_loaded(int bucket, Deadline deadline) {
    const auto found = in_flight_.find(bucket);
    if (found == in_flight_.end())
        throw ProtocolError(fmt::format("bucket {} is not on its way to {}", bucket, peer_));
    const std::shared_ptr<Bucket> state = found->second;
    state->done.wait(deadline);
    in_flight_.erase(bucket);
    if (state->error.empty()) return state->ms;
    failed_ = state->error;
    throw ProtocolError(failed_);
}

void VersionStager::require_whole(std::int64_t version, const ops::Checksum& manifest) const {
    if (!open_) throw ProtocolError(fmt::format("commit at {} before begin", peer_));
    if (version != progress_->version()) {
        throw ProtocolError(
            fmt::format("commit of version {} while {} is open", version, progress_->version()));
    }
    if (!in_flight_.empty())
        throw ProtocolError(fmt::format("commit while bucket {} is on its way", in_flight_.begin()->first));
    if (!failed_.empty()) throw ProtocolError("commit of a version that failed: " + failed_);
    progress_->require_whole(manifest);
}

void VersionStager::drain() {
    stream_.synchronize();
}

void VersionStager::drop() {
    drain();
    in_flight_.clear();
    for (WeightSlot& slot : slots_) slot.memory.data = nullptr;
    give_memory();
    open_ = false;
    finished_ = false;
}

}  // namespace tandem::engine
