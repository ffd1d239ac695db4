#include "engine_adapter/transport/transport.h"

#include "engine_adapter/channel/messages.h"

namespace tandem::engine {

std::string Transport::phase_of(int bucket) {
    return "load bucket " + std::to_string(bucket);
}

void Transport::require_attachable(const TransferPlan& plan) const {
    require(!plan.first.empty(), "a plan without the start of its first bucket");
    require(in_flight_.empty(), "{} buckets are in flight", in_flight_.size());
}

Message Transport::announce(nlohmann::json header, std::span<const int> fds, const TransferPlan& plan,
                            Deadline deadline) {
    const std::vector<std::byte> payload = messages::pack_plan(plan);
    header["op"] = "attach";
    header["transfers"] = plan.transfers.size();
    header["buckets"] = plan.buckets();
    header["ranks"] = plan.ranks;
    if (!plan.cores.empty()) header["cores"] = plan.cores;
    Message reply =
        connection_->request(std::move(header), "attach", deadline, {payload.data(), payload.size()}, fds);
    first_ = plan.first;
    return reply;
}

void Transport::load(int bucket, std::span<const ops::Checksum> checksums, Deadline deadline) {
    require(!in_flight_.contains(bucket), "bucket {} is in flight already", bucket);
    require(bucket >= 0 && static_cast<std::size_t>(bucket) + 1 < first_.size(), "bucket {} of {}", bucket,
            first_.size() - 1);
    const auto at = static_cast<std::size_t>(bucket);
    require(checksums.size() == first_[at + 1] - first_[at], "{} checksums for the {} transfers of bucket {}",
            checksums.size(), first_[at + 1] - first_[at], bucket);
    request_load(nlohmann::json::object(), bucket, checksums, deadline);
}

std::int64_t Transport::request_load(nlohmann::json header, int bucket,
                                     std::span<const ops::Checksum> checksums, Deadline deadline) {
    header["op"] = "load";
    header["index"] = bucket;
    header["checksums"] = checksums.size();
    const std::int64_t request =
        connection_->post(std::move(header), phase_of(bucket), deadline, messages::as_bytes(checksums));
    in_flight_[bucket] = request;
    return request;
}

void Transport::load_delta(int bucket, std::span<const DeltaEntry> entries, Deadline deadline) {
    require(!in_flight_.contains(bucket), "bucket {} is in flight already", bucket);
    require(bucket >= 0, "bucket {}", bucket);
    request_changes(nlohmann::json::object(), bucket, entries, deadline);
}

void Transport::request_changes(nlohmann::json header, int bucket, std::span<const DeltaEntry> entries,
                                Deadline deadline) {
    header["op"] = "load_delta";
    header["index"] = bucket;
    header["entries"] = entries.size();
    in_flight_[bucket] =
        connection_->post(std::move(header), phase_of(bucket), deadline, messages::as_bytes(entries));
}

std::int64_t Transport::request_of(int bucket) const {
    const auto found = in_flight_.find(bucket);
    require(found != in_flight_.end(), "bucket {} is not in flight", bucket);
    return found->second;
}

double Transport::wait_loaded(int bucket, Deadline deadline) {
    const std::int64_t request = request_of(bucket);
    in_flight_.erase(bucket);
    return messages::number_field(connection_->wait(request, phase_of(bucket), deadline).header, "ms");
}

void Transport::drop(int bucket) {
    const auto found = in_flight_.find(bucket);
    if (found == in_flight_.end()) return;
    connection_->forget(found->second);
    in_flight_.erase(found);
}

void Transport::forget_in_flight() {
    for (const auto& [bucket, request] : in_flight_) connection_->forget(request);
    in_flight_.clear();
}

}  // namespace tandem::engine
