// A policy's first step on a mesh with a tp axis, and its comparison with one rank's, parameter by parameter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {

using Values = std::map<std::string, std::vector<float>>;

struct Step {
    std::vector<double> losses;  // of each micro-batch
    std::int64_t tokens = 0;     // trained on, as rates and utilisation count them
    std::int64_t target_tokens = 0;
    double grad_norm = 0;
    Values gradients;  // full
    Values state;      // weights/…, exp_avg/…, exp_avg_sq/… after the step, full
    Scores scores;     // of the first micro-batch, before it
};

// Small models in which nothing divides evenly.
model::ModelConfig llama_with_biases();      // 4 heads, 2 kv heads, untied
model::ModelConfig qwen2_tied();             // 8 heads, 4 kv heads
model::ModelConfig qwen3_of_few_kv_heads();  // 8 heads, 1 kv head, untied

struct TensorRun {
    model::ModelConfig config;
    PolicyOptions options;
    std::vector<std::vector<Sample>> batches;  // accumulated one after the other
    LossOptions loss;
    bool sleeps = false;     // as deeply as it may, before the first pass
    bool after_nan = false;  // gradients of NaN were made and discarded: their memory still has it
};

// One micro-batch, or three of unequal lengths, of which the second has fewer samples than most meshes have ranks.
TensorRun tensor_run(const model::ModelConfig& config, int micro_batches);

// Random weights, the same on every mesh; collective.
void randomise(Policy& policy, unsigned seed, bool value_head = false);

// On one rank's communicator; collective.
Step run_step(std::shared_ptr<comm::Communicator> world, MeshSizes sizes, const TensorRun& run);
// On one rank alone, in fresh memory.
Step run_alone(const TensorRun& run);

// ‖a − b‖ ≤ tolerance · max(‖b‖, 1e-3 ‖all b‖) for every tensor; `kind` is for messages.
void expect_close(const std::string& kind, const Values& found, const Values& one, double tolerance);

// Loss, norm and scores to `tolerance`; ‖g − g₁‖ ≤ tolerance · max(‖g₁‖, 1e-3 ‖all g₁‖) for every parameter, and the moments
// likewise; weights where |g₁| is above 1e-6 of the largest.
void expect_same_step(const Step& found, const Step& one, double tolerance);

// The part of a step that a stage's step has.
Step of_stage(const Step& whole, const Step& stage);

// Every mesh of `ranks` ranks, without stages.
std::vector<MeshSizes> meshes_of(int ranks);
// Every mesh of up to eight ranks with a pp axis that the model fits.
std::vector<MeshSizes> staged_meshes(const model::ModelConfig& config);
// Schedules that pp ranks can run: of those with several stages a rank where there are layers for them.
std::vector<pipeline::Options> schedules_of(const model::ModelConfig& config, int pp);
std::string describe(const MeshSizes& sizes);

}  // namespace tandem::trainer::testing
