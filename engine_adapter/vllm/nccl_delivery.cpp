#include "engine_adapter/vllm/nccl_delivery.h"

#include <nlohmann/json.hpp>

#include "engine_adapter/vllm/backend_update.h"

namespace tandem::engine {
namespace {

constexpr int kBuffers = 2;  // of a worker, a chunk each

}  // namespace

NcclDelivery::NcclDelivery(VllmServer& server, const VllmInfo& info, const std::string& key, Device device,
                           const ConnectOptions& options, Deadline deadline)
    : stager_(info.tensors, server.name(), device, packed_bytes(options)),
      model_(info.model.directory),
      staging_(options.staging),
      packed_bytes_(packed_bytes(options)),
      group_(server, key, options, deadline) {}

void NcclDelivery::finish(VllmServer&, std::int64_t version, const ops::Checksum& manifest,
                          Deadline deadline) {
    stager_.finish(version, manifest);
    if (group_.formed()) return;
    group_.form(stager_.device(),
                {{"packed", packed_bytes_ > 0},
                 {"packed_buffer_size_bytes", packed_bytes_},
                 {"packed_num_buffers", kBuffers}},
                deadline);
}

void NcclDelivery::note(const std::string& server, std::int64_t version) {
    stager_.note(server, staging_, model_, version);
}

void NcclDelivery::deliver(VllmServer& server, std::int64_t, bool broken, Deadline deadline) {
    open_update(server, broken, deadline);
    std::vector<const TensorInfo*> tensors;
    std::vector<Span> pieces;
    for (const PackedChunk& chunk : stager_.layout().chunks) {
        for (const TensorInfo* tensor : stager_.tensors_of(chunk)) tensors.push_back(tensor);
        pieces.push_back(stager_.memory().subspan(chunk.begin, chunk.bytes));
    }
    group_.update(update_info(tensors), pieces, deadline);
    close_update(server, deadline);
}

}  // namespace tandem::engine
