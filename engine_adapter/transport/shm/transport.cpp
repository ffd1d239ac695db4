#include "engine_adapter/transport/shm/transport.h"

namespace tandem::engine {

void ShmTransport::attach(const std::vector<Region>& regions, const TransferPlan& plan, Deadline deadline) {
    require_attachable(plan);
    nlohmann::json sizes = nlohmann::json::array();
    std::vector<int> fds;
    for (const Region& region : regions) {
        enforce(region.fd >= 0, "{}: the shm transport needs regions with a file descriptor, not one of {}",
                peer(), to_string(region.device));
        sizes.push_back(region.memory.bytes);
        fds.push_back(region.fd);
    }
    announce({{"regions", std::move(sizes)}}, fds, plan, deadline);
}

}  // namespace tandem::engine
