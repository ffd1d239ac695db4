// Peak memory of a configured run: the prediction of a rank of each stage, as a table that fits a terminal and as JSON, and
// what a run measured beside it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/data/task.h"
#include "trainer/memory/workload.h"

namespace tandem::trainer::memory {

// The run's own choices, and the peak with each of the others.
struct Report {
    struct Choice {
        std::string checkpointing;
        std::string offload;
        std::uint64_t peak_bytes = 0;
        std::string phase;
        bool chosen = false;
    };
    struct TensorChoice {
        bool sequence_parallel = false;
        bool loss_parallel = false;
        std::uint64_t peak_bytes = 0;
        std::string phase;
        bool chosen = false;
    };
    // A rank of each stage of the pipeline; of the only one, where there is no pipeline.
    struct Stage {
        int rank = 0;
        Prediction prediction;
    };
    int tp = 1;
    Workload work;
    std::vector<Stage> stages;
    std::vector<Choice> choices;               // of the stage that has the largest peak then
    std::vector<TensorChoice> tensor_choices;  // with mesh.tp above 1

    const Stage& largest() const;
};

// What a sync holds beside the shards, by tag, which the trainer cannot know: on rank 0, and on another rank.
struct SyncMemory {
    std::map<std::string, std::int64_t> first;
    std::map<std::string, std::int64_t> other;
};

Report report_of(const RunConfig& config, const config::Schema& schema, const Task& task,
                 const SyncMemory& sync);

// Of rank 0 alone. model: the run's, whose directory may be gone when it ends.
Prediction prediction_of(const RunConfig& config, const model::ModelConfig& model, const Task& task,
                         const std::map<std::string, std::int64_t>& sync);

std::string to_text(const RunConfig& config, const Report& report);
nlohmann::ordered_json to_json(const Report& report);
nlohmann::ordered_json to_json(const Prediction& prediction);

// The memory that every process counted since its start, beside the prediction (measured.cpp). Collective;
// complete on rank 0. {predicted {peak_bytes, phase, by_tag, phases} and ratio where there is one, measured {the same, of rank 0},
// ranks [{peak_bytes, peak_resident_bytes, shared_resident_bytes}]}. Resident: as the kernel counts, with
// libraries and with pages of other ranks that were read in place.
nlohmann::ordered_json measured(comm::Communicator& world, const std::optional<Prediction>& prediction);

}  // namespace tandem::trainer::memory
