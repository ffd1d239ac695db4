#include "engine_adapter/transport/cuda_ipc/transport.h"

#include "engine_adapter/transport/cuda_ipc/messages.h"

namespace tandem::engine {

void CudaIpcTransport::attach(const std::vector<Region>& regions, const TransferPlan& plan,
                              Deadline deadline) {
    require_attachable(plan);
    nlohmann::json sizes = nlohmann::json::array();
    nlohmann::json handles = nlohmann::json::array();
    for (const Region& region : regions) {
        enforce(region.device.type == DeviceType::cuda,
                "{}: the cuda_ipc transport needs regions on a GPU, not on the CPU", peer());
        sizes.push_back(region.memory.bytes);
        handles.push_back(messages::to_json(
            region.handle ? *region.handle : region_handle(region.device, region.memory), region.written));
    }
    announce({{"regions", std::move(sizes)}, {"gpu", std::move(handles)}}, {}, plan, deadline);
}

}  // namespace tandem::engine
