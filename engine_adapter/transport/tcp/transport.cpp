#include "engine_adapter/transport/tcp/transport.h"

#include <algorithm>
#include <chrono>

#include "common/error.h"
#include "engine_adapter/channel/messages.h"

namespace tandem::engine {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);
// When a data connection has ended, for the engine to say over the channel why.
constexpr auto kReason = std::chrono::seconds(2);

}  // namespace

void TcpTransport::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    require_attachable(plan);
    nlohmann::json sizes = nlohmann::json::array();
    std::vector<Span> memory;
    for (const Region& region : regions) {
        enforce(region.device.type == DeviceType::cpu && region.memory.data != nullptr,
                "{}: TCP carries host memory of trainer rank 0's process, and a region is on {}", peer(),
                to_string(region.device));
        sizes.push_back(region.memory.bytes);
        memory.push_back(region.memory);
    }
    disconnect();
    announce({{"regions", std::move(sizes)}, {"tcp", true}}, {}, plan, deadline);
    regions_ = std::move(memory);
    plan_ = plan;
    open("attach", deadline);
}

void TcpTransport::open(const std::string& phase, Deadline deadline) {
    if (sender_) return;
    const Message reply = connection_->request({{"op", "open_data"}}, phase, deadline);
    const std::string token = messages::string_field(reply.header, "token");
    sender_ = std::make_unique<TcpSender>(
        tcp::dial(to_, tcp::Kind::data, token, options_.connections, options_, peer(), phase, deadline));
    serial_ = 0;
}

void TcpTransport::disconnect() {
    sender_.reset();
    ahead_.clear();
    serials_.clear();
}

void TcpTransport::name_serial(nlohmann::json& header, int bucket, std::uint64_t serial, Deadline deadline) {
    serials_[bucket] = serial;
    header["serial"] = serial;
    header["timeout_ms"] = messages::timeout_ms(deadline);
}

PackedBucket TcpTransport::pack(int bucket) const {
    PackedBucket packed;
    for (const Transfer& t : plan_.bucket(static_cast<std::size_t>(bucket))) {
        packed.add(regions_[t.region].data + t.from, t.rows, t.row_elements * dtype_size(t.from_dtype),
                   t.from_stride);
    }
    return packed;
}

PackedBucket TcpTransport::pack(std::span<const DeltaEntry> entries) const {
    PackedBucket packed;
    for (const DeltaEntry& entry : entries) {
        const bool inside = !regions_.empty() && entry.bytes <= regions_[0].bytes &&
                            entry.offset <= regions_[0].bytes - entry.bytes;
        require(inside, "changes of {} bytes at {} do not lie in region 0", entry.bytes, entry.offset);
        packed.add(regions_[0].data + entry.offset, 1, entry.bytes, 0);
    }
    return packed;
}

void TcpTransport::send_ahead(int bucket, Deadline deadline) {
    require(!any_in_flight(), "bucket {} is sent ahead while others are being loaded", bucket);
    require(bucket >= 0 && static_cast<std::size_t>(bucket) < plan_.buckets(), "bucket {} of {}", bucket,
            plan_.buckets());
    require(std::find(ahead_.begin(), ahead_.end(), bucket) == ahead_.end(),
            "bucket {} was sent ahead already", bucket);
    open(phase_of(bucket), deadline);
    sender_->post(serial_++, pack(bucket));
    ahead_.push_back(bucket);
}

std::int64_t TcpTransport::request_load(nlohmann::json header, int bucket,
                                        std::span<const ops::Checksum> checksums, Deadline deadline) {
    const bool sent = !ahead_.empty();
    require(!sent || ahead_.front() == bucket, "bucket {} is loaded, and bucket {} was sent ahead", bucket,
            sent ? ahead_.front() : 0);
    open(phase_of(bucket), deadline);
    name_serial(header, bucket, serial_ - ahead_.size(), deadline);
    const std::int64_t request = Transport::request_load(std::move(header), bucket, checksums, deadline);
    if (sent) {
        ahead_.pop_front();
    } else {
        sender_->post(serial_++, pack(bucket));
    }
    return request;
}

void TcpTransport::request_changes(nlohmann::json header, int bucket, std::span<const DeltaEntry> entries,
                                   Deadline deadline) {
    PackedBucket packed = pack(entries);
    require(ahead_.empty(), "bucket {} of changes is loaded, and bucket {} was sent ahead", bucket,
            ahead_.empty() ? 0 : ahead_.front());
    open(phase_of(bucket), deadline);
    name_serial(header, bucket, serial_, deadline);
    Transport::request_changes(std::move(header), bucket, entries, deadline);
    sender_->post(serial_++, std::move(packed));
}

double TcpTransport::wait_loaded(int bucket, Deadline deadline) {
    const std::int64_t request = request_of(bucket);
    const std::string phase = phase_of(bucket);
    try {
        Deadline until = deadline;
        for (std::string failure; !connection_->answered(request, phase);) {
            if (failure.empty() && sender_) {
                failure = sender_->failure();
                if (!failure.empty() && Deadline::after(kReason).at() < deadline.at())
                    until = Deadline::after(kReason);
            }
            if (until.passed()) {
                if (!failure.empty()) throw TransportError(peer(), phase, failure, true);
                throw DeadlineExceeded(peer(), phase, "the engine has not answered that it has the bucket",
                                       true);
            }
            connection_->wait_readable(kLook);
        }
        const double ms = Transport::wait_loaded(bucket, deadline);
        const auto serial = serials_.extract(bucket);
        if (sender_ && !serial.empty() && !sender_->wait_sent(serial.mapped(), deadline)) {
            const std::string failure = sender_->failure();
            throw TransportError(peer(), phase, failure.empty() ? "it answered before it had all" : failure,
                                 true);
        }
        return ms;
    } catch (...) {
        disconnect();
        drop(bucket);
        throw;
    }
}

void TcpTransport::forget_in_flight() {
    if (any_in_flight() || !ahead_.empty()) disconnect();
    Transport::forget_in_flight();
}

}  // namespace tandem::engine
