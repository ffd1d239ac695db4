// The modes and their traits, a row each (modes.cpp), and refusal(): why a mode does not work in a setting.
// The session, the bench and tandem-train ask here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/device/device.h"
#include "sync/cost/predict.h"
#include "sync/strategy/options.h"
#include "sync/strategy/strategy.h"

namespace tandem::sync {

struct ModeTraits {
    std::string_view name;
    std::unique_ptr<SyncStrategy> (*make)(const SyncContext&) = nullptr;
    // Where it works:
    bool from_gpu = false;           // the trainer's weights may lie on a GPU
    std::string_view cpu_work = {};  // what it does with them on the CPU, where they may not
    bool quantised = false;          // engines may hold weights in eight bits
    bool several_hosts = false;      // trainer ranks may be on other hosts than rank 0
    bool over_nccl = false;          // rank 0 gathers all bytes in memory of its own, which nccl sends
    // What it relies on:
    bool in_place = false;      // engines read the trainer's memory until the next version
    bool opens_shards = false;  // engines map the shards themselves, which must stay where they are
    bool every_byte = false;    // each push brings every byte, whatever the engine holds
    // What it takes:
    bool staged = false;               // slots of staging: bucket size and depth matter
    int least_depth = 2;               // that many at least
    int arena_copies = 0;              // of the whole model, in an arena that the mode makes
    bool keeps_base = false;           // each rank keeps a copy of what it pushed last
    std::size_t bucket_bytes = 0;      // by default; 0: by the size of the last-level cache
    std::size_t gpu_bucket_bytes = 0;  // by default, from a GPU
    CostModel cost_model = CostModel::none;
};

const ModeTraits& traits(Mode mode);
std::string_view mode_name(Mode mode);
Mode mode_from_name(std::string_view name);  // throws BadInput listing the names
// "gather, direct or alias": all modes, or those with a trait.
std::string mode_names(std::string_view last_joint = " or ", bool ModeTraits::*trait = nullptr);

// The two sides of a sync, as far as they are known.
struct Setting {
    Device weights = {};                     // of the trainer, as the sync reads them
    std::optional<Device> engine = {};       // of the engine's weights; none: as the trainer's
    std::string_view transport = "auto";     // shm, cuda_ipc, nccl, tcp
    bool several_hosts = false;              // of trainer ranks
    bool quantised = false;                  // the engine holds weights in eight bits
    std::string_view quantised_tensor = {};  // one of them, for messages
    bool engine_reads_in_place = true;       // whether the engine can
    bool engine_stages = false;              // it takes whole versions, from memory of trainer rank 0
    bool shards_leave = false;               // their memory is given back between two pushes
    bool engine_drops_weights = false;       // between two pushes
};

struct Refusal {
    enum class About : std::uint8_t { mode, transport, device, dtype };
    About about = About::mode;  // the choice that should be another one
    std::string why;            // about a mode: begins with its name
    std::string advice;
    std::string sentence() const { return why + ": " + advice; }
};

// Why a mode does not work in a setting; none where it does.
std::optional<Refusal> refusal(Mode mode, const Setting& setting);

}  // namespace tandem::sync
