// The peak that a run really had, beside the one that was predicted.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/comm/communicator.h"
#include "trainer/memory/predict.h"

namespace tandem::trainer::memory {

// Of all ranks, by what each process has counted since its start. Collective; complete on rank 0.
// {predicted {peak_bytes, phase, by_tag, phases}, measured {the same, of rank 0}, ratio, ranks [{peak_bytes,
// peak_resident_bytes, shared_resident_bytes}]}. Resident: as the kernel counts, with libraries and with
// pages of other ranks that were read in place.
nlohmann::ordered_json measured(comm::Communicator& world, const Prediction& prediction);

}  // namespace tandem::trainer::memory
