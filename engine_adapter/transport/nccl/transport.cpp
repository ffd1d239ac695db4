#include "engine_adapter/transport/nccl/transport.h"

#include <unistd.h>

#include "engine_adapter/channel/messages.h"

namespace tandem::engine {

NcclTransport::~NcclTransport() {
    if (any_in_flight()) group_->abort("a transport ended with buckets in flight");
}

void NcclTransport::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    require_attachable(plan);
    nlohmann::json sizes = nlohmann::json::array();
    std::vector<Span> memory;
    for (const Region& region : regions) {
        enforce(region.device == group_->device(),
                "{}: the nccl transport sends from {}, and a region is on {}", peer(),
                to_string(group_->device()), to_string(region.device));
        enforce(region.memory.data != nullptr && (!region.handle || region.handle->pid == ::getpid()),
                "{}: the nccl transport sends this process's memory, and a region is another rank's: use "
                "mode gather",
                peer());
        sizes.push_back(region.memory.bytes);
        memory.push_back(region.memory);
    }
    group_->form("attach", deadline);
    announce({{"regions", std::move(sizes)}, {"nccl", true}}, {}, plan, deadline);
    group_->attach(engine_, memory, plan);
}

std::int64_t NcclTransport::request_load(nlohmann::json header, int bucket,
                                         std::span<const ops::Checksum> checksums, Deadline deadline) {
    const std::string phase = phase_of(bucket);
    group_->form(phase, deadline);
    header["form"] = messages::form_name(group_->choose_form(engine_, bucket));
    header["timeout_ms"] = messages::timeout_ms(deadline);
    try {
        const std::int64_t request = Transport::request_load(std::move(header), bucket, checksums, deadline);
        group_->launch(engine_, bucket, request, phase, deadline);
        return request;
    } catch (const std::exception& error) {
        group_->abort(error.what());
        drop(bucket);
        throw;
    }
}

double NcclTransport::wait_loaded(int bucket, Deadline deadline) {
    const std::int64_t request = request_of(bucket);
    try {
        group_->wait_answered(engine_, request, phase_of(bucket), deadline);
        const double ms = Transport::wait_loaded(bucket, deadline);
        group_->wait_sent(engine_, bucket, deadline);
        return ms;
    } catch (const DeadlineExceeded& error) {
        drop(bucket);
        // The engine only knows that bytes are missing; another rank may have delayed them.
        if (!group_->broken()) group_->throw_naming_late_ranks(phase_of(bucket), error.what());
        throw;
    } catch (const std::exception& error) {
        group_->abort(error.what());
        drop(bucket);
        throw;
    }
}

void NcclTransport::forget_in_flight() {
    if (any_in_flight()) group_->abort("the update was aborted");
    Transport::forget_in_flight();
}

}  // namespace tandem::engine
