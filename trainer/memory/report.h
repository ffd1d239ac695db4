// What the prediction of a run looks like: a table that fits a terminal, and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trainer/config/config.h"
#include "trainer/data/task.h"
#include "trainer/memory/predict.h"

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
    RankShape rank;
    Workload work;
    Prediction prediction;
    std::vector<Choice> choices;
};

// `sync`: what a sync holds on rank 0 beside the shards, by tag; the trainer does not know it.
Report report_of(const RunConfig& config, const config::Schema& schema, const Task& task,
                 const std::map<std::string, std::int64_t>& sync);

std::string to_text(const RunConfig& config, const Report& report);
nlohmann::ordered_json to_json(const Report& report);
nlohmann::ordered_json to_json(const Prediction& prediction);

}  // namespace tandem::trainer::memory
