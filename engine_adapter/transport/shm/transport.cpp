#include "engine_adapter/transport/shm/transport.h"

namespace tandem::engine {

ShmTransport::ShmTransport(std::shared_ptr<Connection> connection, const std::vector<TensorInfo>& tensors)
    : connection_(std::move(connection)) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
        number_of_[tensors[i].name] = static_cast<std::uint32_t>(i);
}

void ShmTransport::stage(const StagingArea& staging, Deadline deadline) {
    require(staging.fd >= 0, "the shm transport needs staging memory with a file descriptor");
    connection_->request({{"op", "attach"}, {"slots", staging.slots}, {"slot_bytes", staging.slot_bytes}}, {},
                         staging.fd, "attach", deadline);
}

void ShmTransport::post(const Bucket& bucket, Deadline deadline) {
    require(!in_flight_.contains(bucket.index), "bucket {} is in flight already", bucket.index);
    packed_.clear();
    for (const BucketEntry& entry : bucket.entries) {
        const auto number = number_of_.find(entry.name);
        require(number != number_of_.end(), "{} holds no tensor '{}'", peer(), entry.name);
        packed_.push_back({number->second, static_cast<std::uint32_t>(entry.source_rank), entry.tensor_offset,
                           entry.bucket_offset, entry.bytes, entry.checksum});
    }
    in_flight_[bucket.index] = connection_->post(
        {{"op", "bucket"}, {"index", bucket.index}, {"slot", bucket.slot}, {"entries", packed_.size()}},
        wire::as_bytes(packed_), -1, "load bucket " + std::to_string(bucket.index), deadline);
}

std::int64_t ShmTransport::request_of(int index) const {
    const auto found = in_flight_.find(index);
    require(found != in_flight_.end(), "bucket {} is not in flight", index);
    return found->second;
}

Poll ShmTransport::poll(int index) {
    const std::int64_t request = request_of(index);
    try {
        return connection_->answered(request) ? Poll::done : Poll::pending;
    } catch (const Error&) {
        return Poll::failed;
    }
}

double ShmTransport::wait(int index, Deadline deadline) {
    const std::int64_t request = request_of(index);
    in_flight_.erase(index);
    const Message reply = connection_->wait(request, "load bucket " + std::to_string(index), deadline);
    return reply.header.value("copy_ms", 0.0);
}

void ShmTransport::release() {
    for (const auto& [index, request] : in_flight_) connection_->forget(request);
    in_flight_.clear();
}

}  // namespace tandem::engine
