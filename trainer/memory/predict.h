// Peak memory of a rank, known beforehand: its policy runs on a thread that only counts (common/device/counting.h), among
// ranks that are not there. What it allocates is what a run allocates; no kernel runs and no page is touched.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/device/memory.h"
#include "common/mesh/device_mesh.h"
#include "common/model/model_config.h"
#include "trainer/data/packing.h"
#include "trainer/data/sample.h"
#include "trainer/loss/loss_options.h"
#include "trainer/policy/options.h"
#include "trainer/policy/scores.h"

namespace tandem::trainer::memory {

// A batch of all ranks, and the packs of it that the rank works on.
struct Batch {
    std::shared_ptr<const std::vector<Sample>> samples;
    std::vector<Pack> packs;        // none: its own, as in a run
    std::int64_t other_tokens = 0;  // of samples that are in no pack and left out
};

// What a rank does.
struct Work {
    struct Score {
        Batch batch;
        ScoreOptions options;
    };
    struct Update {
        Batch batch;
        LossOptions loss;
    };
    // Scores, updates, then a sync of what was made, and sleep.
    struct Step {
        std::vector<Score> scores;
        std::vector<Update> updates;
    };
    std::vector<Step> steps;                   // a second one of a kind finds what the first one keeps
    bool reference = false;                    // there is such a model
    std::map<std::string, std::int64_t> sync;  // bytes by tag that a sync holds on the rank
};

struct Prediction {
    std::map<std::string, MemoryPeak> phases;
    std::string phase;  // the one with the highest peak

    const MemoryPeak& peak() const { return phases.at(phase); }
};

// Of the rank whose mesh it is, which may be abstract. A GPU of the options need not be there. Blocks while the policy runs:
// about 0.1 ms a layer and micro-batch. Throws as Policy does.
Prediction predict(const model::ModelConfig& model, const PolicyOptions& options, const DeviceMesh& mesh,
                   const Work& work);

}  // namespace tandem::trainer::memory
