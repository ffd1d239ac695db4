#include "engine_adapter/hf_directory/stager.h"

#include <utility>

#include "common/error.h"

namespace tandem::engine {

Stager::Stager(std::vector<TensorInfo> tensors, std::filesystem::path model, std::filesystem::path root,
               std::string peer, std::shared_ptr<StagingShare> share)
    : VersionStager(std::move(tensors), std::move(peer)),
      model_(std::move(model)),
      root_(std::move(root)),
      share_(std::move(share)) {}

Stager::~Stager() {
    drain();
    give_memory();
}

Device Stager::device_for(const std::vector<Region>& regions) {
    for (const Region& region : regions) {
        enforce(region.device.type == DeviceType::cpu && region.memory.data != nullptr,
                "{} is given whole versions through memory of this process: use mode gather, from the CPU",
                peer());
    }
    return {};
}

bool Stager::take_memory(std::int64_t version, std::vector<WeightSlot>& slots) {
    bool fill = true;
    if (share_) {
        StagingShare::Claim claim = share_->claim(root_, model_, tensors(), version);
        staged_ = std::move(claim.directory);
        fill = claim.fill;
    } else {
        staged_ = std::make_shared<SharedDirectory>(root_, model_, tensors(), version);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i].memory = staged_->directory().memory(i);
    return fill;
}

const StagedDirectory& Stager::finish(std::int64_t version, const ops::Checksum& manifest,
                                      Deadline deadline) {
    require_whole(version, manifest);
    if (fills())
        staged_->finish(announced());
    else
        staged_->wait_whole(announced(), peer(), deadline);
    close();
    return staged_->directory();
}

// Others may wait for what this one fills.
void Stager::give_memory() noexcept {
    if (staged_ && fills()) staged_->give_up();
    staged_.reset();
}

}  // namespace tandem::engine
