#include "engine_adapter/gpu_staging/gpu_stager.h"

#include <utility>

#include "common/error.h"

namespace tandem::engine {

GpuStager::GpuStager(std::vector<TensorInfo> tensors, std::string peer, Device device,
                     std::uint64_t chunk_bytes)
    : VersionStager(std::move(tensors), std::move(peer)),
      for_host_memory_(device),
      layout_(lay_out_packed(VersionStager::tensors(), chunk_bytes)),
      device_(device) {}

GpuStager::~GpuStager() {
    drain();
}

Device GpuStager::device_for(const std::vector<Region>& regions) {
    Device device = for_host_memory_;
    for (const Region& region : regions) {
        enforce(region.memory.data != nullptr,
                "{} is given whole versions through memory of this process: use mode gather", peer());
        if (region.device.type != DeviceType::cpu) device = region.device;
    }
    return device_ = device;
}

bool GpuStager::take_memory(std::int64_t, std::vector<WeightSlot>& slots) {
    if (arena_.bytes() < layout_.bytes || arena_.device() != device_) {
        arena_ = {};
        arena_ = ExportArena::create(device_, layout_.bytes, "engine.staging");
    }
    for (std::size_t i = 0; i < slots.size(); ++i)
        slots[i].memory = arena_.span().subspan(layout_.begin[i], slots[i].memory.bytes);
    return true;
}

std::vector<const TensorInfo*> GpuStager::tensors_of(const PackedChunk& chunk) const {
    std::vector<const TensorInfo*> infos;
    for (const std::size_t i : chunk.tensors) infos.push_back(&tensors()[i]);
    return infos;
}

void GpuStager::finish(std::int64_t version, const ops::Checksum& manifest) {
    require_whole(version, manifest);
    close();
}

void GpuStager::note(const std::string& text, const std::filesystem::path& root,
                     const std::filesystem::path& model, std::int64_t version) {
    note_.emplace(root, model, std::vector<TensorInfo>{}, version);
    note_->note(text);
}

}  // namespace tandem::engine
