// A family of models, meshes and modes whose memory is predicted and measured; the test of one rank and that
// of processes share it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/comm/communicator.h"

#include "tests/unit/trainer/policy/policy_run.h"

namespace tandem::trainer::testing {

struct MemoryCase {
    int model = 0;
    MeshSizes mesh;
    DType dtype = DType::float32;
    Checkpointing checkpointing = Checkpointing::none;
    PolicyOptions::ContextMode context = PolicyOptions::ContextMode::packed;
    int rows = 256;  // of a rank
    int micro_batches = 1;
    bool reduce_every = true;
    ReshardAfterForward reshard = true;
    bool offload_optimizer = false;
    bool offload_parameters = false;
    bool gpu = false;
    PolicyOptions::Sleep sleep = PolicyOptions::Sleep::none;  // between the steps
    int length = 64;                                          // of a sequence
    bool sequence_parallel = true;
    bool loss_parallel = true;
    bool value_head = false;
    std::string schedule = "1F1B";  // with mesh.pp
    // Else it depends on timing how many hidden states are on their way, on threads of their own, to the next stage.
    bool is_exact() const { return mesh.pp == 0 || model != 2; }
};

std::string describe(const MemoryCase& c);
std::vector<MemoryCase> one_rank_cases();
std::vector<MemoryCase> process_cases();
std::vector<MemoryCase> gpu_cases();  // processes, each on the first GPU, real or emulated

// Two steps, scores and training, on one rank. Returns what was off: a tag, by a byte that no counter explains (in a
// case that is not exact the sum, by more than a tenth); empty when nothing was. Memory must be this rank's alone: a process each.
std::string check_memory(std::shared_ptr<comm::Communicator> world, const MemoryCase& c);

}  // namespace tandem::trainer::testing
