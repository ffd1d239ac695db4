// Runs a policy on a mesh of thread ranks and brings back what rank 0 saw: the tests compare meshes by it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "trainer/policy/policy.h"

namespace tandem::trainer::testing {

struct MeshSizes {
    int dp = 1;
    int cp = 1;
    int dp_replicate = 0;  // not 0: the mesh is (dp_replicate, dp / dp_replicate, cp)
    int tp = 0;            // not 0: it has the axis tp
    int pp = 0;            // not 0: it has the axis pp
    int ranks() const { return dp * cp * std::max(tp, 1) * std::max(pp, 1); }
};

DeviceMesh make_mesh(std::shared_ptr<comm::Communicator> world, MeshSizes sizes);

struct Outcome {
    StepStats stats;
    std::map<std::string, std::vector<float>> gradients;   // full
    std::map<std::string, std::vector<float>> parameters;  // full, at the end
    std::vector<std::vector<float>> logprobs;
};

// A small model; odd sizes leave ranks with short and empty shards.
model::ModelConfig tiny_config();
// Samples of the given lengths with random tokens; about two thirds of them targets; with advantages and old
// log-probs.
std::vector<Sample> random_samples(const std::vector<int>& lengths, std::int64_t vocab, unsigned seed);

// Full tensors by name; collective. Needs a Policy::OnloadScope.
std::map<std::string, std::vector<float>> full_values(
    const std::vector<std::pair<std::string, DTensor>>& tensors);

// Where rank `rank` of a test runs: with TANDEM_TEST_DEVICE=cuda on one of the GPUs in turn, real or
// emulated.
Device device_of(int rank);

// Before the run, on each rank.
using Prepare = std::function<void(Policy&)>;

// Log-probs, then one accumulate, on one rank's communicator. Parameters and gradients with the value head's.
Outcome run_rank(std::shared_ptr<comm::Communicator> world, MeshSizes sizes, const model::ModelConfig& config,
                 PolicyOptions options, const std::vector<Sample>& samples, const LossOptions& loss,
                 const Prepare& prepare = {});
// The same on a thread a rank; checks that all ranks agree on the statistics.
Outcome run_mesh(MeshSizes sizes, const model::ModelConfig& config, const PolicyOptions& options,
                 const std::vector<Sample>& samples, const LossOptions& loss, const Prepare& prepare = {});

// ||a - b|| / ||b||; absolute where b is zero.
double relative_difference(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tandem::trainer::testing
